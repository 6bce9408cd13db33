"""Queues declared as quorum queues, which applications do without asking how many nodes there are."""

import pika
import pytest

import broker
from deliveries import Inbox, arrived, bodies, channel_closed, depth, own_exchange, own_queue, round_trip, send


@pytest.fixture
def quorum(channel, leftovers):
    """Declares quorum queues with more x-arguments."""
    def declare(**arguments):
        name = leftovers.queue()
        given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **given})
        return name

    return declare


def settled(channel, queue, count):
    """Waits for a number of ready messages."""
    broker.until(lambda: depth(channel, queue) == count, pause=channel.connection.sleep)


def test_messages_pass_in_order_and_are_confirmed(channel, quorum):
    queue = quorum()
    send(channel, queue, *range(20), delivery_mode=2)
    inbox = Inbox(channel, queue)
    assert bodies(inbox.wait(20)) == [str(number) for number in range(20)]
    channel.basic_ack(0, multiple=True)
    round_trip(channel)
    settled(channel, queue, 0)


@pytest.mark.parametrize("options", [{"durable": False}, {"durable": True, "exclusive": True}], ids=str)
def test_a_quorum_queue_is_durable_and_shared(channel, options):
    with channel_closed(406, "invalid property"):
        channel.queue_declare(broker.unique(), arguments={"x-queue-type": "quorum"}, **options)


def test_returned_messages_count_their_deliveries(channel, quorum):
    queue = quorum()
    send(channel, queue, "x")
    for count in range(3):
        message = arrived(channel, queue, auto_ack=False)
        assert (message.properties.headers or {}).get("x-delivery-count", 0) == count
        channel.basic_nack(message.method.delivery_tag, requeue=True)
    arrived(channel, queue)


def test_without_a_limit_a_message_may_be_returned_for_ever(channel, quorum):
    queue = quorum()
    send(channel, queue, "x")
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue)
    for count in range(1, 40):
        channel.basic_nack(inbox.wait(count)[-1].method.delivery_tag, requeue=True)
    channel.basic_ack(inbox.wait(40)[-1].method.delivery_tag)


def test_beyond_the_delivery_limit_a_message_is_dead_lettered(channel, quorum):
    exchange = own_exchange(channel, "fanout")
    grave = own_queue(channel)
    channel.queue_bind(grave, exchange)
    queue = quorum(delivery_limit=2, dead_letter_exchange=exchange)
    send(channel, queue, "poison")
    for _ in range(3):
        channel.basic_nack(arrived(channel, queue, auto_ack=False).method.delivery_tag, requeue=True)
    message = arrived(channel, grave)
    entry, = message.properties.headers["x-death"]
    assert (message.body, entry["reason"], entry["queue"], entry["count"]) == (b"poison", "delivery_limit", queue, 1)


def test_rejected_messages_are_dead_lettered(channel, quorum):
    grave = own_queue(channel)
    queue = quorum(dead_letter_exchange="", dead_letter_routing_key=grave)
    send(channel, queue, "x")
    channel.basic_reject(arrived(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    assert arrived(channel, grave).properties.headers["x-first-death-reason"] == "rejected"


def test_a_message_ttl_is_kept(channel, quorum):
    queue = quorum(message_ttl=100)
    send(channel, queue, "x")
    channel.connection.sleep(0.5)
    assert Inbox(channel, queue, auto_ack=True).settle() == []


def test_a_length_limit_that_rejects(channel, quorum):
    queue = quorum(max_length=2, overflow="reject-publish")
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.NackError):
        for _ in range(200):
            channel.basic_publish("", queue, b"x")


def test_unsettled_messages_come_back_when_the_channel_closes(channel, connect, quorum):
    queue = quorum()
    send(channel, queue, *range(10))
    losing = connect()
    Inbox(losing.channel(), queue).wait(10)
    losing.close()
    inbox = Inbox(channel, queue, auto_ack=True).wait(10)
    assert sorted(int(message.body) for message in inbox) == list(range(10))
    assert all(message.method.redelivered for message in inbox)


def test_global_prefetch_is_refused(channel, quorum):
    queue = quorum()
    channel.basic_qos(prefetch_count=1, global_qos=True)
    with pytest.raises(pika.exceptions.AMQPError):
        channel.basic_consume(queue, print)


def test_streams_are_refused_clearly_or_work(channel, leftovers):
    name = leftovers.queue()
    try:
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    except pika.exceptions.AMQPError as error:
        assert "stream" in str(error)
