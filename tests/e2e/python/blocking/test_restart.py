"""What outlives a restart of the broker and what does not. Uses the command named by LEPUS_RESTART."""

import pika
import pytest

import broker
from deliveries import bodies, channel_closed, depth, own_queue, send, take, take_all


def test_what_is_durable_survives_and_the_rest_does_not(restart, connect, leftovers):
    durable, transient, exclusive = leftovers.queue(), broker.unique("transient"), broker.unique("exclusive")
    kept, lost, inner = leftovers.exchange(), broker.unique("exchange"), leftovers.exchange()
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(durable, durable=True, arguments={"x-max-priority": 5})
    channel.queue_declare(transient)
    channel.queue_declare(exclusive, durable=True, exclusive=True)
    channel.exchange_declare(kept, "topic", durable=True)
    channel.exchange_declare(inner, "headers", durable=True)
    channel.exchange_declare(lost, "fanout")
    channel.queue_bind(durable, kept, "a.*")
    channel.exchange_bind(inner, kept, "b.#")
    channel.queue_bind(durable, inner, "", {"x-match": "any", "colour": "red"})
    channel.queue_bind(transient, kept, "#")
    send(channel, durable, "persistent 1", "persistent 2", delivery_mode=2, headers={"n": [1, None]}, priority=3)
    send(channel, durable, "transient", delivery_mode=1)
    send(channel, durable, "higher", delivery_mode=2, priority=4)
    assert take(channel, durable, auto_ack=False).body == b"higher"

    restart()

    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.sleep(broker.PATIENCE)
    channel = connect().channel()
    messages = take_all(channel, durable)
    assert bodies(messages) == ["higher", "persistent 1", "persistent 2"]
    assert messages[1].properties.headers == {"n": [1, None]} and messages[1].properties.delivery_mode == 2
    channel.exchange_declare(kept, "topic", durable=True)
    for missing in (transient, exclusive):
        with channel_closed(404):
            channel.connection.channel().queue_declare(missing, passive=True)
    with channel_closed(404):
        channel.connection.channel().exchange_declare(lost, passive=True)
    channel.confirm_delivery()
    channel.basic_publish(kept, "a.b", b"bound", mandatory=True)
    channel.basic_publish(kept, "b.c", b"through", pika.BasicProperties(headers={"colour": "red"}), mandatory=True)
    assert bodies(take_all(channel, durable)) == ["bound", "through"]


def test_every_confirmed_persistent_message_is_there_after_a_restart(restart, connect, leftovers):
    queue, quorum = leftovers.queue(), leftovers.queue()
    channel = connect().channel()
    channel.queue_declare(queue, durable=True)
    channel.queue_declare(quorum, durable=True, arguments={"x-queue-type": "quorum"})
    for name in (queue, quorum):
        send(channel, name, *range(200), delivery_mode=2)
    send(channel, queue, bytes(3_000_000), delivery_mode=2)
    for _ in range(50):
        take(channel, queue)
    channel.connection.sleep(0)
    depth(channel, queue)

    restart()

    channel = connect().channel()
    assert broker.until(lambda: depth(channel, quorum) == 200, pause=channel.connection.sleep)
    messages = take_all(channel, queue)
    assert bodies(messages[:-1]) == [str(number) for number in range(50, 200)]
    assert messages[-1].body == bytes(3_000_000)


def test_a_stop_tells_clients_why(restart, connect):
    connection = connect()
    own_queue(connection.channel())
    restart()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.sleep(broker.PATIENCE)
    assert caught.value.reply_code == 320
