"""Requests and replies through amq.rabbitmq.reply-to."""

import pika
import pytest

import broker
from deliveries import Inbox, arrived, channel_closed, own_queue, round_trip

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def request_and_inbox(channel):
    """A channel with a reply consumer, and the reply-to token that a server sees: (inbox, token)."""
    asked = own_queue(channel)
    inbox = Inbox(channel, REPLY_TO, auto_ack=True)
    channel.basic_publish("", asked, b"ask", pika.BasicProperties(reply_to=REPLY_TO))
    return inbox, arrived(channel, asked).properties.reply_to


def test_the_token_is_routable_from_another_connection(connect, request_and_inbox):
    inbox, token = request_and_inbox
    assert token.startswith(REPLY_TO + ".")
    server = connect().channel()
    server.confirm_delivery()
    server.basic_publish("", token, b"answer", pika.BasicProperties(correlation_id="1"))
    message = inbox.wait(1)[0]
    assert (message.body, message.properties.correlation_id) == (b"answer", "1")
    assert (message.method.exchange, message.method.routing_key) == ("", token)


def test_the_token_can_be_looked_up_while_its_consumer_lives(connect, request_and_inbox):
    _inbox, token = request_and_inbox
    server = connect().channel()
    found = server.queue_declare(token, passive=True).method
    assert (found.queue, found.message_count, found.consumer_count) == (token, 0, 1)


def test_the_token_cannot_be_looked_up_after_its_channel_closed(channel, connect, request_and_inbox):
    _inbox, token = request_and_inbox
    channel.close()
    with channel_closed(404):
        connect().channel().queue_declare(token, passive=True)


def test_a_mandatory_reply_to_a_closed_channel_returns(channel, connect, request_and_inbox):
    _inbox, token = request_and_inbox
    channel.close()
    server = connect().channel()
    server.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        server.basic_publish("", token, b"too late", mandatory=True)


def test_a_tampered_token_is_not_found(connect, request_and_inbox):
    _inbox, token = request_and_inbox
    with channel_closed(404):
        connect().channel().queue_declare(token[:-4] + "AAAA", passive=True)


def test_a_reply_to_a_tampered_token_goes_nowhere(connect, request_and_inbox):
    inbox, token = request_and_inbox
    server = connect().channel()
    server.confirm_delivery()
    server.basic_publish("", REPLY_TO + ".g2dkAAlub2JvZHk", b"x")
    server.basic_publish("", token, b"right")
    assert inbox.wait(1)[0].body == b"right"


def test_the_reply_consumer_must_not_acknowledge(channel):
    with channel_closed(406, "reply consumer cannot acknowledge"):
        channel.basic_consume(REPLY_TO, print, auto_ack=False)


def test_there_is_one_reply_consumer_per_channel(channel):
    Inbox(channel, REPLY_TO, auto_ack=True)
    with channel_closed(406, "reply consumer already set"):
        Inbox(channel, REPLY_TO, auto_ack=True)


def test_a_request_without_reply_consumer_is_refused(channel):
    with channel_closed(406, "fast reply consumer does not exist"):
        channel.basic_publish("", own_queue(channel), b"x", pika.BasicProperties(reply_to=REPLY_TO))
        round_trip(channel)


def test_the_pseudo_queue_can_be_looked_up(channel):
    assert channel.queue_declare(REPLY_TO, passive=True).method.message_count == 0


def test_the_pseudo_queue_cannot_be_bound(channel):
    broker.needs(4, 0, "older brokers answer that there is no such queue")
    with channel_closed(403):
        channel.queue_bind(REPLY_TO, "amq.direct", "k")


def test_the_reply_consumer_can_be_cancelled_and_set_again(channel):
    for _ in range(2):
        inbox = Inbox(channel, REPLY_TO, auto_ack=True)
        channel.basic_cancel(inbox.tag)


def test_many_requests_through_one_reply_consumer(channel, connect):
    asked = broker.unique()
    server = connect().channel()
    server.queue_declare(asked, exclusive=True)

    def answer(own, method, properties, body):
        own.basic_publish("", properties.reply_to, body[::-1], pika.BasicProperties(correlation_id=properties.correlation_id))

    server.basic_consume(asked, answer, auto_ack=True)
    inbox = Inbox(channel, REPLY_TO, auto_ack=True)
    for number in range(200):
        channel.basic_publish("", asked, b"%03d" % number,
                              pika.BasicProperties(reply_to=REPLY_TO, correlation_id=str(number)))
    round_trip(channel)
    while len(inbox.messages) < 200:
        server.connection.process_data_events(0.05)
        channel.connection.process_data_events(0.05)
    assert [(message.properties.correlation_id, message.body) for message in inbox.messages] == [
        (str(number), (b"%03d" % number)[::-1]) for number in range(200)]
