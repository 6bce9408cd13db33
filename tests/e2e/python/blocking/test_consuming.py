"""Consuming: deliveries, settlement, prefetch, priorities, cancellation, what a closed channel gives back."""

import pika
import pytest

import broker
from deliveries import (Inbox, arrived, bodies, channel_closed, connection_closed, consumers, depth, own_queue, round_trip,
                        send, take, take_all)


def numbers(count, start=0):
    """Bodies as text."""
    return [str(number) for number in range(start, start + count)]


def test_get_tells_what_is_left(channel):
    queue = own_queue(channel)
    assert take(channel, queue) is None
    send(channel, queue, 1, 2, 3)
    assert [arrived(channel, queue).method.message_count for _ in range(3)] == [2, 1, 0]


def test_a_delivery_names_consumer_exchange_and_key(channel):
    queue = own_queue(channel)
    inbox = Inbox(channel, queue, consumer_tag="mine")
    assert inbox.tag == "mine"
    send(channel, queue, "x")
    method = inbox.wait(1)[0].method
    assert (method.consumer_tag, method.exchange, method.routing_key) == ("mine", "", queue)
    assert (method.delivery_tag, method.redelivered) == (1, False)


def test_the_broker_makes_up_a_consumer_tag(channel):
    queue = own_queue(channel)
    channel._impl._send_method(pika.spec.Basic.Consume(queue=queue, consumer_tag=""), None)
    told = []
    channel._impl.add_callback(told.append, [pika.spec.Basic.ConsumeOk])
    broker.until(lambda: told, pause=channel.connection.sleep)
    assert told[0].method.consumer_tag.startswith("amq.ctag-")


def test_consuming_from_a_missing_queue_is_not_found(channel):
    with channel_closed(404, "no queue"):
        channel.basic_consume(broker.unique(), print)


def test_acknowledged_messages_do_not_come_back(channel, connect):
    queue = own_queue(channel)
    send(channel, queue, *numbers(10))
    working = channel.connection.channel()
    inbox = Inbox(working, queue)
    for message in inbox.wait(10)[:4]:
        working.basic_ack(message.method.delivery_tag)
    working.basic_ack(inbox.messages[6].method.delivery_tag, multiple=True)
    working.close()
    assert bodies(take_all(channel, queue)) == ["7", "8", "9"]


def test_ack_zero_multiple_settles_everything(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(5))
    working = channel.connection.channel()
    Inbox(working, queue).wait(5)
    working.basic_ack(0, multiple=True)
    working.close()
    assert depth(channel, queue) == 0


@pytest.mark.parametrize("settle", ["basic_ack", "basic_nack", "basic_reject"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_settling_a_tag_twice_is_refused(channel, leftovers, settle, kind):
    queue = leftovers.queue()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    send(channel, queue, 1, 2)
    working = channel.connection.channel()
    tag = arrived(working, queue, auto_ack=False).method.delivery_tag
    working.basic_ack(tag)
    with channel_closed(406, "unknown delivery tag"):
        getattr(working, settle)(tag)
        round_trip(working)


def test_settling_what_was_never_delivered_is_refused(channel):
    queue = own_queue(channel)
    send(channel, queue, 1)
    working = channel.connection.channel()
    assert take(working, queue, auto_ack=False)
    with channel_closed(406, "unknown delivery tag"):
        working.basic_ack(2, multiple=True)
        round_trip(working)
    again = take(channel, queue)
    assert again.method.redelivered, "the unsettled message came back with the channel's end"


def test_auto_acknowledged_messages_are_gone(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(3))
    working = channel.connection.channel()
    Inbox(working, queue, auto_ack=True).wait(3)
    working.close()
    assert depth(channel, queue) == 0


@pytest.mark.parametrize("reject", [
    lambda channel, tag: channel.basic_reject(tag, requeue=True),
    lambda channel, tag: channel.basic_nack(tag, requeue=True),
], ids=["reject", "nack"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_requeued_message_comes_back_marked(channel, leftovers, reject, kind):
    queue = leftovers.queue()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    send(channel, queue, "a", "b")
    message = arrived(channel, queue, auto_ack=False)
    assert (message.body, message.method.redelivered) == (b"a", False)
    reject(channel, message.method.delivery_tag)
    round_trip(channel)
    again = [arrived(channel, queue) for _ in range(2)]
    redelivered = {message.body: message.method.redelivered for message in again}
    assert redelivered == {b"a": True, b"b": False}
    if kind == "classic":
        assert bodies(again) == ["a", "b"]


def test_rejected_for_good_is_gone(channel):
    queue = own_queue(channel)
    send(channel, queue, "a", "b")
    channel.basic_reject(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    channel.basic_nack(take(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    round_trip(channel)
    assert depth(channel, queue) == 0


def test_nack_multiple_requeues_in_order(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(10))
    held = [take(channel, queue, auto_ack=False) for _ in range(6)]
    channel.basic_nack(held[3].method.delivery_tag, multiple=True, requeue=True)
    broker.until(lambda: depth(channel, queue) == 8, pause=channel.connection.sleep)
    assert bodies(take_all(channel, queue)) == ["0", "1", "2", "3", "6", "7", "8", "9"]
    channel.basic_nack(0, multiple=True, requeue=True)
    broker.until(lambda: depth(channel, queue) == 2, pause=channel.connection.sleep)
    assert bodies(take_all(channel, queue)) == ["4", "5"]


def test_recover_requeues_everything(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(5))
    working = channel.connection.channel()
    for _ in range(5):
        take(working, queue, auto_ack=False)
    working.basic_recover(requeue=True)
    again = take_all(working, queue)
    assert bodies(again) == numbers(5) and all(message.method.redelivered for message in again)


def test_recover_to_the_same_consumer_is_not_implemented(channel):
    with connection_closed(540, "NOT_IMPLEMENTED"):
        channel.basic_recover(requeue=False)


@pytest.mark.parametrize("end", ["channel", "connection", "network"])
def test_two_thousand_unsettled_messages_come_back_in_order(channel, connect, proxy, end, leftovers):
    queue = leftovers.queue()
    channel.queue_declare(queue)
    send(channel, queue, *numbers(2000))
    losing = connect(host="127.0.0.1", port=proxy.port)
    working = losing.channel()
    working.basic_qos(prefetch_count=2000)
    assert len(Inbox(working, queue).wait(2000)) == 2000
    send(channel, queue, "new")
    {"channel": working.close, "connection": losing.close, "network": proxy.cut}[end]()
    broker.until(lambda: depth(channel, queue) == 2001, pause=channel.connection.sleep)
    inbox = Inbox(channel, queue, auto_ack=True).wait(2001)
    assert bodies(inbox) == numbers(2000) + ["new"]
    assert [message.method.redelivered for message in inbox] == [True] * 2000 + [False]


def test_cancel_leaves_delivered_messages_with_the_channel(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(4))
    working = channel.connection.channel()
    working.basic_qos(prefetch_count=2)
    inbox = Inbox(working, queue)
    tags = [message.method.delivery_tag for message in inbox.wait(2)]
    working.basic_cancel(inbox.tag)
    assert (depth(channel, queue), consumers(channel, queue)) == (2, 0)
    working.basic_ack(tags[0])
    round_trip(working)
    working.close()
    assert bodies(take_all(channel, queue)) == ["1", "2", "3"]


def test_after_cancel_a_tag_can_be_used_again(channel):
    queue = own_queue(channel)
    for _ in range(3):
        inbox = Inbox(channel, queue, auto_ack=True, consumer_tag="again")
        send(channel, queue, "x")
        inbox.wait(1)
        channel.basic_cancel("again")


def test_the_broker_cancels_consumers_of_a_deleted_queue(connection):
    channel, other = connection.channel(), connection.channel()
    queue = own_queue(channel)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tags = [Inbox(channel, queue).tag for _ in range(2)]
    other.queue_delete(queue)
    broker.until(lambda: connection.process_data_events(0.05) or len(cancelled) == 2, pause=lambda _seconds: None)
    assert sorted(cancelled) == sorted(tags)


def test_the_generator_of_a_deleted_queue_ends(connection):
    channel, other = connection.channel(), connection.channel()
    queue = own_queue(channel)
    send(channel, queue, "only")
    got = []
    for method, _properties, body in channel.consume(queue, inactivity_timeout=broker.PATIENCE):
        assert method is not None, "the generator waited in vain"
        got.append(body)
        other.queue_delete(queue)
    assert got == [b"only"]


def test_an_exclusive_consumer_is_alone(channel):
    queue = own_queue(channel)
    Inbox(channel, queue, exclusive=True)
    with channel_closed(403, "exclusive"):
        Inbox(channel.connection.channel(), queue)


def test_a_used_queue_cannot_be_consumed_exclusively(channel):
    queue = own_queue(channel)
    Inbox(channel, queue)
    with channel_closed(403, "exclusive"):
        Inbox(channel.connection.channel(), queue, exclusive=True)


def test_prefetch_holds_back_until_acknowledged(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(10))
    channel.basic_qos(prefetch_count=3)
    inbox = Inbox(channel, queue)
    inbox.wait(3)
    assert len(inbox.settle()) == 3
    channel.basic_ack(inbox.messages[1].method.delivery_tag, multiple=True)
    inbox.wait(5)
    assert len(inbox.settle()) == 5 and inbox.bodies() == numbers(5)


def test_prefetch_counts_per_consumer(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(20))
    channel.basic_qos(prefetch_count=2)
    one = Inbox(channel, queue)
    channel.basic_qos(prefetch_count=5)
    two = Inbox(channel, queue)
    one.wait(2), two.wait(5)
    assert (len(one.settle()), len(two.settle())) == (2, 5)


def test_no_prefetch_means_no_limit(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(700))
    channel.basic_qos(prefetch_count=1)
    channel.basic_qos(prefetch_count=0)
    assert len(Inbox(channel, queue).wait(700)) == 700


def test_auto_ack_ignores_prefetch(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(50))
    channel.basic_qos(prefetch_count=1)
    assert len(Inbox(channel, queue, auto_ack=True).wait(50)) == 50


@pytest.mark.parametrize("way", ["nack", "reject", "drop", "recover"])
def test_every_way_of_settling_gives_credit_back(channel, way):
    queue = own_queue(channel)
    send(channel, queue, *numbers(4))
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue)
    for count in range(1, 4):
        tag = inbox.wait(count)[-1].method.delivery_tag
        if way == "nack":
            channel.basic_nack(tag, requeue=True)
        elif way == "reject":
            channel.basic_reject(tag, requeue=True)
        elif way == "drop":
            channel.basic_reject(tag, requeue=False)
        else:
            channel.basic_recover(requeue=True)
    inbox.wait(4)
    assert inbox.bodies() == (numbers(4) if way == "drop" else ["0"] * 4)


def test_global_prefetch_is_shared_by_the_channels_consumers(channel):
    one, two = own_queue(channel), own_queue(channel)
    send(channel, one, *numbers(10))
    send(channel, two, *numbers(10))
    channel.basic_qos(prefetch_count=4, global_qos=True)
    first, second = Inbox(channel, one), Inbox(channel, two)
    first.wait(4)
    second.settle(), first.settle()
    assert len(first.messages) + len(second.messages) == 4
    channel.basic_ack(0, multiple=True)
    broker.until(lambda: channel.connection.process_data_events(0.05)
                 or len(first.messages) + len(second.messages) == 8, pause=lambda _seconds: None)
    second.settle(), first.settle()
    assert len(first.messages) + len(second.messages) == 8


def test_global_and_own_prefetch_hold_together(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(20))
    channel.basic_qos(prefetch_count=3)
    channel.basic_qos(prefetch_count=5, global_qos=True)
    one, two = Inbox(channel, queue), Inbox(channel, queue)
    broker.until(lambda: channel.connection.process_data_events(0.05)
                 or len(one.messages) + len(two.messages) == 5, pause=lambda _seconds: None)
    one.settle(), two.settle()
    assert len(one.messages) + len(two.messages) == 5
    assert max(len(one.messages), len(two.messages)) <= 3


def test_the_global_prefetch_may_be_raised_while_messages_are_out(channel):
    queue = own_queue(channel)
    send(channel, queue, *numbers(10))
    channel.basic_qos(prefetch_count=2, global_qos=True)
    inbox = Inbox(channel, queue)
    inbox.wait(2)
    assert len(inbox.settle()) == 2
    channel.basic_qos(prefetch_count=6, global_qos=True)
    inbox.wait(6)
    assert len(inbox.settle()) == 6
    channel.basic_qos(prefetch_count=0, global_qos=True)
    inbox.wait(10)


def test_consumers_take_turns(channel):
    queue = own_queue(channel)
    channel.basic_qos(prefetch_count=10)
    inboxes = [Inbox(channel, queue) for _ in range(4)]
    send(channel, queue, *numbers(40))
    for inbox in inboxes:
        inbox.wait(10)
    assert [len(inbox.settle()) for inbox in inboxes] == [10] * 4


def test_the_consumer_of_higher_priority_is_served_first(channel):
    queue = own_queue(channel)
    channel.basic_qos(prefetch_count=3)
    low = Inbox(channel, queue, arguments={"x-priority": -1})
    high = Inbox(channel, queue, arguments={"x-priority": 5})
    plain = Inbox(channel, queue)
    send(channel, queue, *numbers(9))
    for inbox, first in ((high, 0), (plain, 3), (low, 6)):
        inbox.wait(3)
        assert inbox.bodies() == numbers(3, first)


@pytest.mark.parametrize("priority", ["high", 1 == 1, {"a": 1}], ids=str)
def test_a_consumer_priority_that_is_no_integer_is_refused(channel, priority):
    queue = own_queue(channel)
    with channel_closed(406):
        channel.basic_consume(queue, print, arguments={"x-priority": priority})


def test_a_single_active_consumer_hands_over(connection):
    channel = connection.channel()
    queue = own_queue(channel, single_active_consumer=True)
    first_channel, second_channel = connection.channel(), connection.channel()
    first, second = Inbox(first_channel, queue), Inbox(second_channel, queue)
    send(channel, queue, *numbers(5))
    first.wait(5)
    assert not second.settle()
    first_channel.basic_ack(first.messages[1].method.delivery_tag, multiple=True)
    first_channel.close()
    second.wait(3)
    assert second.bodies() == ["2", "3", "4"]


def test_every_consumer_of_one_queue_on_many_connections_gets_its_share(connect):
    channel = connect().channel()
    queue = broker.unique()
    channel.queue_declare(queue, auto_delete=True)
    inboxes = []
    for _ in range(8):
        other = connect().channel()
        other.basic_qos(prefetch_count=5)
        inboxes.append(Inbox(other, queue))
    send(channel, queue, *numbers(40))
    got = [body for inbox in inboxes for body in bodies(inbox.wait(5))]
    assert sorted(got, key=int) == numbers(40)


def test_a_consumer_may_publish_and_acknowledge_from_its_callback(channel):
    asked, answered = own_queue(channel), own_queue(channel)

    def answer(own, method, properties, body):
        own.basic_publish("", properties.reply_to, body.upper(), pika.BasicProperties(correlation_id=properties.correlation_id))
        own.basic_ack(method.delivery_tag)

    channel.basic_consume(asked, answer)
    send(channel, asked, "question", reply_to=answered, correlation_id="7")
    inbox = Inbox(channel, answered, auto_ack=True)
    reply = inbox.wait(1)[0]
    assert (reply.body, reply.properties.correlation_id) == (b"QUESTION", "7")
