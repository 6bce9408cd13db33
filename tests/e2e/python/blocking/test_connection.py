"""Connections as an application opens, loses and reopens them."""

import pika
import pytest

import broker
from deliveries import own_queue, send, take


def test_a_connection_opens_and_closes(connect):
    connection = connect()
    assert connection.is_open
    connection.close()
    assert connection.is_closed


def test_the_client_may_name_its_connection(connect):
    connection = connect(client_properties={"connection_name": broker.unique("connection")})
    assert own_queue(connection.channel())


def test_a_wrong_password_is_an_authentication_error(connect):
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"):
        connect(credentials=pika.PlainCredentials(broker.user(), "not the password"))


def test_an_unknown_user_is_an_authentication_error(connect):
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(credentials=pika.PlainCredentials(broker.unique("user"), "x"))


def test_an_unknown_vhost_is_an_access_error(connect):
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        connect(virtual_host=broker.unique("vhost"))


def test_a_quiet_connection_with_one_second_heartbeats_stays_open(connect):
    connection = connect(heartbeat=1)
    connection.sleep(5)
    channel = connection.channel()
    queue = own_queue(channel)
    send(channel, queue, "still here")
    assert take(channel, queue).body == b"still here"


def test_a_connection_without_heartbeats_is_accepted(connect):
    assert own_queue(connect(heartbeat=0).channel())


def test_the_clients_lower_channel_max_is_honoured(connect):
    connection = connect(channel_max=5)
    channels = [connection.channel() for _ in range(5)]
    with pytest.raises(pika.exceptions.NoFreeChannels):
        connection.channel()
    for channel in channels:
        channel.close()
    assert [connection.channel().channel_number for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("frame_max", [4096, 70_000, 131_072])
def test_large_bodies_pass_with_any_frame_max(connect, frame_max):
    channel = connect(frame_max=frame_max).channel()
    queue = own_queue(channel)
    body = bytes(range(256)) * 2000
    send(channel, queue, body)
    assert take(channel, queue).body == body


def test_a_thousand_channels_come_and_go(connection):
    for _ in range(1000):
        connection.channel().close()
    assert own_queue(connection.channel())


def test_channels_of_one_connection_work_side_by_side(connection):
    channels = [connection.channel() for _ in range(50)]
    queues = [own_queue(channel) for channel in channels]
    for number, (channel, queue) in enumerate(zip(channels, queues)):
        channel.basic_publish("", queue, str(number).encode())
    for number, (channel, queue) in enumerate(zip(channels, queues)):
        assert broker.until(lambda: take(channel, queue), pause=connection.sleep).body == str(number).encode()


def test_flow_on_is_acknowledged(channel):
    assert channel.flow(True) is True


def test_the_secret_may_be_renewed(connection):
    connection.update_secret(broker.password(), "rotation")
    assert own_queue(connection.channel())


def test_a_lost_connection_requeues_and_a_new_one_continues(connect, proxy, leftovers):
    queue = leftovers.queue()
    first = connect(host="127.0.0.1", port=proxy.port)
    channel = first.channel()
    channel.queue_declare(queue, durable=True)
    send(channel, queue, "one", "two", delivery_mode=2)
    assert take(channel, queue, auto_ack=False).body == b"one"
    proxy.cut()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        first.sleep(broker.PATIENCE)

    second = connect(host="127.0.0.1", port=proxy.port)
    channel = second.channel()
    broker.until(lambda: channel.queue_declare(queue, passive=True).method.message_count == 2, pause=second.sleep)
    again = take(channel, queue)
    assert (again.body, again.method.redelivered) == (b"one", True)
    assert take(channel, queue).body == b"two"


def test_many_connections_at_once(connect):
    connections = [connect() for _ in range(40)]
    queue = own_queue(connections[0].channel())
    for number, connection in enumerate(connections):
        send(connection.channel(), queue, number)
    first = connections[0].channel()
    assert sorted(int(take(first, queue).body) for _ in connections) == list(range(40))
