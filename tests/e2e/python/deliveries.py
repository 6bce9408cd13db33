"""What the pika tests do with queues and messages, said once."""

import contextlib
import time
from collections import namedtuple

import pika
import pytest

import broker

Message = namedtuple("Message", "method properties body")


@contextlib.contextmanager
def channel_closed(code, *words):
    """The block must end in the broker closing the channel with this code and these words in the text."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value
    for word in words:
        assert word in caught.value.reply_text


@contextlib.contextmanager
def connection_closed(code, *words):
    """The block must end in the broker closing the connection."""
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value
    for word in words:
        assert word in caught.value.reply_text


def own_queue(channel, **arguments):
    """A fresh exclusive queue with these x-arguments; gives back its name."""
    given = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    return channel.queue_declare("", exclusive=True, arguments=given).method.queue


def own_exchange(channel, kind, **options):
    """A fresh exchange that goes with its last binding."""
    name = broker.unique("exchange")
    channel.exchange_declare(name, kind, auto_delete=True, **options)
    return name


def depth(channel, queue):
    """Ready messages of a queue."""
    return channel.queue_declare(queue, passive=True).method.message_count


def consumers(channel, queue):
    """Consumers of a queue."""
    return channel.queue_declare(queue, passive=True).method.consumer_count


def send(channel, queue, *bodies, **properties):
    """Publishes bodies to a queue by name and returns once the broker confirmed them."""
    settled = pika.BasicProperties(**properties) if properties else None
    confirming = channel.connection.channel()
    confirming.confirm_delivery()
    for body in bodies:
        confirming.basic_publish("", queue, body if isinstance(body, bytes) else str(body).encode(), settled)
    confirming.close()


def take(channel, queue, auto_ack=True):
    """One message by basic.get, or None."""
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    return None if method is None else Message(method, properties, body)


def take_all(channel, queue, auto_ack=True):
    """Everything ready in a queue, by basic.get."""
    return list(iter(lambda: take(channel, queue, auto_ack), None))


def arrived(channel, queue, auto_ack=True):
    """The next message of a queue, waiting until there is one."""
    return broker.until(lambda: take(channel, queue, auto_ack), pause=channel.connection.sleep)


def bodies(messages):
    """Bodies as text."""
    return [message.body.decode() for message in messages]


class Inbox:
    """A consumer that collects what it gets."""

    def __init__(self, channel, queue, auto_ack=False, **options):
        self.channel, self.messages, self.cancelled = channel, [], False
        self.tag = channel.basic_consume(queue, self._on_message, auto_ack=auto_ack, **options)

    def _on_message(self, _channel, method, properties, body):
        self.messages.append(Message(method, properties, body))

    def wait(self, count):
        """The first `count` messages, once they are there."""
        deadline = time.monotonic() + broker.PATIENCE
        while len(self.messages) < count:
            assert time.monotonic() < deadline, f"{len(self.messages)} of {count} messages came"
            self.channel.connection.process_data_events(0.1)
        return self.messages[:count]

    def settle(self):
        """What is there once everything the broker sent before a round trip has been read."""
        round_trip(self.channel)
        self.channel.connection.process_data_events(0)
        return self.messages

    def bodies(self):
        """Bodies received so far as text."""
        return bodies(self.messages)


def round_trip(channel):
    """Waits for an answer on this channel, hence for everything sent before it."""
    channel.exchange_declare("amq.direct", passive=True)
