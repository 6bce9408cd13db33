"""Message time to live: by queue, by message, both, and what it does at the queue's head."""

import pika
import pytest

import broker
from deliveries import Inbox, arrived, bodies, channel_closed, depth, own_exchange, own_queue, round_trip, send, take, take_all


def emptied(channel, queue):
    """Waits until nothing is ready in the queue."""
    broker.until(lambda: depth(channel, queue) == 0, pause=channel.connection.sleep)


def test_messages_leave_after_the_queues_ttl(channel):
    queue = own_queue(channel, message_ttl=200)
    send(channel, queue, 1, 2)
    emptied(channel, queue)
    assert take(channel, queue) is None


def test_messages_leave_after_their_own_expiration(channel):
    queue = own_queue(channel)
    send(channel, queue, 1, expiration="200")
    emptied(channel, queue)


@pytest.mark.parametrize("queue_ttl, message_ttl", [(60_000, "150"), (150, "60000")])
def test_the_shorter_of_both_counts(channel, queue_ttl, message_ttl):
    queue = own_queue(channel, message_ttl=queue_ttl)
    send(channel, queue, 1, expiration=message_ttl)
    emptied(channel, queue)


def test_a_ttl_of_zero_is_delivered_only_at_once(channel):
    queue = own_queue(channel, message_ttl=0)
    send(channel, queue, "nobody waits")
    assert take(channel, queue) is None
    inbox = Inbox(channel, queue, auto_ack=True)
    send(channel, queue, "somebody waits")
    assert bodies(inbox.wait(1)) == ["somebody waits"]


def test_an_expiration_of_zero_is_delivered_only_at_once(channel):
    queue = own_queue(channel)
    send(channel, queue, "nobody waits", expiration="0")
    assert take(channel, queue) is None
    inbox = Inbox(channel, queue, auto_ack=True)
    send(channel, queue, "somebody waits", expiration="0")
    assert inbox.wait(1)[0].properties.expiration == "0"


def test_expired_messages_leave_only_at_the_head(channel):
    queue = own_queue(channel)
    send(channel, queue, "long", expiration="60000")
    send(channel, queue, "short", expiration="50")
    channel.connection.sleep(0.4)
    assert depth(channel, queue) == 2
    assert take(channel, queue).body == b"long"
    emptied(channel, queue)


def test_an_unexpired_message_behind_expired_ones_is_delivered(channel):
    queue = own_queue(channel)
    send(channel, queue, 1, 2, 3, expiration="100")
    send(channel, queue, "stays")
    broker.until(lambda: depth(channel, queue) == 1, pause=channel.connection.sleep)
    assert bodies(take_all(channel, queue)) == ["stays"]


def test_a_delivered_message_does_not_expire_but_a_requeued_one_keeps_its_deadline(channel):
    queue = own_queue(channel, message_ttl=2000)
    send(channel, queue, 1)
    message = take(channel, queue, auto_ack=False)
    channel.connection.sleep(2.4)
    channel.basic_nack(message.method.delivery_tag, requeue=True)
    round_trip(channel)
    emptied(channel, queue)
    assert take(channel, queue) is None


def test_a_requeued_message_within_its_time_comes_back(channel):
    queue = own_queue(channel, message_ttl=20_000)
    send(channel, queue, 1)
    channel.basic_nack(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=True)
    assert arrived(channel, queue).method.redelivered


def test_the_property_is_delivered_unchanged(channel):
    queue = own_queue(channel)
    send(channel, queue, 1, expiration="60000")
    assert take(channel, queue).properties.expiration == "60000"


def test_ttl_counts_for_messages_routed_by_an_exchange(channel):
    exchange = own_exchange(channel, "fanout")
    brief, lasting = own_queue(channel, message_ttl=100), own_queue(channel)
    for queue in (brief, lasting):
        channel.queue_bind(queue, exchange)
    channel.basic_publish(exchange, "", b"x")
    assert arrived(channel, lasting)
    emptied(channel, brief)


def test_ttl_counts_from_the_commit_of_a_transaction(connection, channel):
    queue = own_queue(channel, message_ttl=100)
    transaction = connection.channel()
    transaction.tx_select()
    transaction.basic_publish("", queue, b"x")
    transaction.tx_commit()
    emptied(channel, queue)


def test_a_slow_consumer_does_not_get_what_expired_meanwhile(channel):
    queue = own_queue(channel, message_ttl=300)
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue)
    send(channel, queue, *range(5))
    first = inbox.wait(1)[0]
    emptied(channel, queue)
    channel.basic_ack(first.method.delivery_tag)
    assert len(inbox.settle()) == 1
    send(channel, queue, "new")
    assert bodies(inbox.wait(2)) == ["0", "new"]


@pytest.mark.parametrize("expiration", ["4294967296000", str(2**53)])
def test_an_expiration_beyond_all_measure_is_refused(channel, expiration):
    with channel_closed(406):
        channel.basic_publish("", own_queue(channel), b"x", pika.BasicProperties(expiration=expiration))
        round_trip(channel)
