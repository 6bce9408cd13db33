"""Dead letters: why messages leave a queue, where they go, and the history they carry."""

import datetime

import pika
import pytest

import broker
from deliveries import Inbox, arrived, bodies, channel_closed, depth, own_exchange, own_queue, round_trip, send, take, take_all


@pytest.fixture
def dead(channel):
    """A fanout exchange for dead letters with one queue: (exchange, queue)."""
    exchange = own_exchange(channel, "fanout")
    queue = own_queue(channel)
    channel.queue_bind(queue, exchange)
    return exchange, queue


def history(message):
    """The x-death header."""
    return message.properties.headers["x-death"]


def die(channel, queue, reason):
    """Makes the message "victim", published by the callee, leave a queue for this reason."""
    if reason == "rejected":
        send(channel, queue, "victim")
        channel.basic_reject(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    elif reason == "expired":
        send(channel, queue, "victim")
    else:
        send(channel, queue, "victim", "survivor")


REASONS = {"rejected": {}, "expired": {"message_ttl": 50}, "maxlen": {"max_length": 1}}


@pytest.mark.parametrize("reason", REASONS)
def test_a_dead_letter_carries_its_history(channel, dead, reason):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange, **REASONS[reason])
    die(channel, queue, reason)
    message = arrived(channel, grave)
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"victim", exchange, queue)
    headers = message.properties.headers
    assert (headers["x-first-death-reason"], headers["x-first-death-queue"], headers["x-first-death-exchange"]) == (reason, queue, "")
    entry, = history(message)
    assert isinstance(entry.pop("time"), datetime.datetime)
    assert entry == {"count": 1, "reason": reason, "queue": queue, "exchange": "", "routing-keys": [queue]}


@pytest.mark.parametrize("reason", REASONS)
def test_the_last_death_is_told_too(channel, dead, reason):
    broker.needs(4, 0, "x-last-death headers are newer")
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange, **REASONS[reason])
    die(channel, queue, reason)
    headers = arrived(channel, grave).properties.headers
    assert (headers["x-last-death-reason"], headers["x-last-death-queue"], headers["x-last-death-exchange"]) == (reason, queue, "")


def test_the_other_properties_stay(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange)
    send(channel, queue, "x", content_type="text/plain", message_id="m", delivery_mode=2, headers={"own": [1, {"a": 2}]})
    channel.basic_reject(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    properties = arrived(channel, grave).properties
    assert (properties.content_type, properties.message_id, properties.delivery_mode) == ("text/plain", "m", 2)
    assert properties.headers["own"] == [1, {"a": 2}]


def test_an_expiration_moves_into_the_history(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange)
    send(channel, queue, "x", expiration="50")
    message = arrived(channel, grave)
    assert message.properties.expiration is None
    assert history(message)[0]["original-expiration"] == "50"


def test_the_routing_key_can_be_replaced(channel):
    exchange = own_exchange(channel, "direct")
    grave = own_queue(channel)
    channel.queue_bind(grave, exchange, "graveyard")
    queue = own_queue(channel, dead_letter_exchange=exchange, dead_letter_routing_key="graveyard", message_ttl=0)
    send(channel, queue, "x")
    message = arrived(channel, grave)
    assert message.method.routing_key == "graveyard"
    assert history(message)[0]["routing-keys"] == [queue]


def test_the_default_exchange_can_take_dead_letters(channel):
    grave = own_queue(channel)
    queue = own_queue(channel, dead_letter_exchange="", dead_letter_routing_key=grave, message_ttl=0)
    send(channel, queue, "x")
    assert arrived(channel, grave).method.exchange == ""


def test_a_missing_dead_letter_exchange_drops_silently(channel):
    queue = own_queue(channel, dead_letter_exchange=broker.unique("missing"))
    send(channel, queue, "x", "y")
    channel.basic_reject(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    assert take(channel, queue).body == b"y"


def test_requeued_acknowledged_and_purged_messages_are_no_dead_letters(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange)
    send(channel, queue, 1, 2, 3)
    channel.basic_nack(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=True)
    channel.basic_ack(arrived(channel, queue, auto_ack=False).method.delivery_tag)
    channel.queue_purge(queue)
    channel.queue_delete(queue)
    assert depth(channel, grave) == 0


def test_nack_multiple_dead_letters_in_order(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange)
    send(channel, queue, *range(20))
    for _ in range(20):
        last = take(channel, queue, auto_ack=False)
    channel.basic_nack(last.method.delivery_tag, multiple=True, requeue=False)
    assert bodies([arrived(channel, grave) for _ in range(20)]) == [str(number) for number in range(20)]


def test_a_queue_length_limit_dead_letters_the_oldest_in_order(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange, max_length=3)
    send(channel, queue, *range(10))
    assert bodies([arrived(channel, grave) for _ in range(7)]) == [str(number) for number in range(7)]
    assert bodies(take_all(channel, queue)) == ["7", "8", "9"]


def test_reject_publish_dlx_nacks_and_dead_letters(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange, max_length=1, overflow="reject-publish-dlx")
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"first")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"second")
    assert arrived(channel, grave).body == b"second"
    assert take(channel, queue).body == b"first"


def test_repeated_deaths_count_and_the_newest_stands_first(channel):
    work, wait = broker.unique("work"), broker.unique("wait")
    channel.queue_declare(work, exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    channel.queue_declare(wait, exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 30})
    send(channel, work, "retry me")
    for round_number in range(1, 5):
        message = arrived(channel, work, auto_ack=False)
        if round_number > 1:
            deaths = [(entry["queue"], entry["reason"], entry["count"]) for entry in history(message)]
            assert deaths == [(wait, "expired", round_number - 1), (work, "rejected", round_number - 1)]
            assert message.properties.headers["x-first-death-queue"] == work
        channel.basic_reject(message.method.delivery_tag, requeue=False)


def test_a_cycle_of_expiries_alone_is_cut(channel):
    one, two = broker.unique("one"), broker.unique("two")
    for own, other in ((one, two), (two, one)):
        channel.queue_declare(own, exclusive=True, arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other, "x-message-ttl": 50})
    send(channel, one, "goes round")
    seen = set()
    broker.until(lambda: (seen.update(queue for queue in (one, two) if depth(channel, queue)), two in seen)[1],
                 pause=lambda _seconds: None)
    broker.until(lambda: depth(channel, one) + depth(channel, two) == 0, pause=channel.connection.sleep)
    channel.connection.sleep(0.3)
    assert depth(channel, one) + depth(channel, two) == 0


def test_a_queue_that_dead_letters_to_itself_by_expiry_drops(channel):
    queue = broker.unique()
    channel.queue_declare(queue, exclusive=True, arguments={"x-dead-letter-exchange": "", "x-message-ttl": 50})
    send(channel, queue, "x")
    broker.until(lambda: depth(channel, queue) == 0, pause=channel.connection.sleep)


def test_a_rejected_message_may_come_back_to_its_own_queue(channel):
    queue = broker.unique()
    channel.queue_declare(queue, exclusive=True, arguments={"x-dead-letter-exchange": ""})
    send(channel, queue, "x")
    for count in range(1, 4):
        message = arrived(channel, queue, auto_ack=False)
        if count > 1:
            assert history(message)[0]["count"] == count - 1
        channel.basic_reject(message.method.delivery_tag, requeue=False)


def test_the_history_keeps_cc_and_leaves_out_bcc(channel, dead):
    exchange, grave = dead
    queue, hidden = own_queue(channel, dead_letter_exchange=exchange, message_ttl=0), own_queue(channel)
    send(channel, queue, "x", headers={"CC": ["also"], "BCC": [hidden]})
    assert take(channel, hidden)
    message = arrived(channel, grave)
    assert history(message)[0]["routing-keys"] == [queue, "also"]
    assert "BCC" not in message.properties.headers


def test_cc_routes_work_for_the_dead_letter_unless_the_key_is_replaced(channel):
    exchange = own_exchange(channel, "direct")
    by_cc, by_key = own_queue(channel), own_queue(channel)
    channel.queue_bind(by_cc, exchange, "copy")
    channel.queue_bind(by_key, exchange, "replaced")
    plain = own_queue(channel, dead_letter_exchange=exchange, message_ttl=0)
    replacing = own_queue(channel, dead_letter_exchange=exchange, dead_letter_routing_key="replaced", message_ttl=0)
    send(channel, plain, "by cc", headers={"CC": ["copy"]})
    send(channel, replacing, "by key", headers={"CC": ["copy"]})
    assert arrived(channel, by_cc).body == b"by cc"
    assert arrived(channel, by_key).body == b"by key"
    assert depth(channel, by_cc) == 0


def test_a_publisher_cannot_forge_a_history(channel, dead):
    broker.needs(4, 0, "older brokers count on from the publisher's x-death")
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange, message_ttl=0)
    forged = [{"count": 41, "reason": "expired", "queue": queue, "exchange": "", "routing-keys": [queue]}]
    send(channel, queue, "x", headers={"x-death": forged})
    assert history(arrived(channel, grave))[0]["count"] == 1


def test_dead_letters_reach_consumers(channel, dead):
    exchange, grave = dead
    inbox = Inbox(channel, grave, auto_ack=True)
    queue = own_queue(channel, dead_letter_exchange=exchange)
    send(channel, queue, *range(100))
    working = channel.connection.channel()
    for message in Inbox(working, queue).wait(100):
        working.basic_reject(message.method.delivery_tag, requeue=False)
    assert bodies(inbox.wait(100)) == [str(number) for number in range(100)]


def test_a_confirmed_dead_letter_of_a_full_queue_is_in_the_other_queue(channel, dead):
    exchange, grave = dead
    queue = own_queue(channel, dead_letter_exchange=exchange, max_length=0)
    send(channel, queue, "x", delivery_mode=2)
    assert arrived(channel, grave).body == b"x"


def test_the_key_without_the_exchange_is_refused(channel):
    with channel_closed(406, "x-dead-letter"):
        channel.queue_declare("", exclusive=True, arguments={"x-dead-letter-routing-key": "k"})
