"""Kombu over py-amqp: producers, consumers, simple queues, reconnection."""

import socket

import amqp.exceptions
import kombu
import pytest
from kombu.pools import producers

import broker


@pytest.fixture
def connection():
    """A connection of kombu's."""
    with kombu.Connection(broker.URI, heartbeat=10) as opened:
        yield opened


def exclusive(name=None, **options):
    """A queue that goes with its connection."""
    return kombu.Queue(name or broker.unique(), exclusive=True, durable=False, auto_delete=True, **options)


def receive(connection, queue, count, **options):
    """The next messages of a queue, acknowledged."""
    got = []

    def keep(body, message):
        got.append((body, message))
        message.ack()

    with connection.Consumer(queue, callbacks=[keep], **options):
        while len(got) < count:
            connection.drain_events(timeout=broker.PATIENCE)
    return got


def test_json_and_pickle_bodies_round_trip(connection):
    queue = exclusive()(connection.default_channel)
    queue.declare()
    producer = connection.Producer()
    producer.publish({"a": [1, None, "ü"]}, routing_key=queue.name, serializer="json")
    producer.publish("text", routing_key=queue.name, compression="zlib", priority=3, headers={"h": 1})
    (first, _), (second, message) = receive(connection, queue, 2)
    assert (first, second) == ({"a": [1, None, "ü"]}, "text")
    assert message.headers["h"] == 1 and message.properties["priority"] == 3


@pytest.mark.parametrize("kind, key", [("direct", "k"), ("topic", "a.#"), ("fanout", "")])
def test_every_exchange_type_is_declared_with_its_queue(connection, kind, key):
    exchange = kombu.Exchange(broker.unique("exchange"), kind, durable=False, auto_delete=True)
    queue = exclusive(exchange=exchange, routing_key=key)(connection.default_channel)
    queue.declare()
    connection.Producer(exchange=exchange).publish({"kind": kind}, routing_key="a.b" if kind == "topic" else "k")
    assert receive(connection, queue, 1)[0][0] == {"kind": kind}


def test_exchanges_bind_to_exchanges(connection):
    channel = connection.default_channel
    source = kombu.Exchange(broker.unique("exchange"), "topic", durable=False, auto_delete=True)(channel)
    target = kombu.Exchange(broker.unique("exchange"), "fanout", durable=False, auto_delete=True)(channel)
    source.declare(), target.declare()
    target.bind_to(source, routing_key="in.*")
    queue = exclusive(exchange=target)(channel)
    queue.declare()
    connection.Producer(exchange=source).publish("through", routing_key="in.side")
    assert receive(connection, queue, 1)[0][0] == "through"


def test_a_confirming_connection_waits_for_the_broker():
    with kombu.Connection(broker.URI, transport_options={"confirm_publish": True}) as connection:
        queue = exclusive()(connection.default_channel)
        queue.declare()
        for number in range(50):
            connection.Producer(connection.default_channel).publish(number, routing_key=queue.name, timeout=broker.PATIENCE)
        assert queue.queue_declare(passive=True).message_count == 50


def test_reject_and_requeue(connection):
    queue = exclusive()(connection.default_channel)
    queue.declare()
    connection.Producer().publish("x", routing_key=queue.name)
    broker.until(lambda: queue.queue_declare(passive=True).message_count)
    message = queue.get()
    assert not message.delivery_info["redelivered"]
    message.requeue()
    message = broker.until(queue.get)
    assert message.delivery_info["redelivered"]
    message.reject()
    assert queue.get() is None


def test_prefetch_limits_a_consumer(connection):
    queue = exclusive()(connection.default_channel)
    queue.declare()
    for number in range(5):
        connection.Producer().publish(number, routing_key=queue.name)
    broker.until(lambda: queue.queue_declare(passive=True).message_count == 5)
    got = []
    with connection.Consumer(queue, callbacks=[lambda _body, message: got.append(message)], prefetch_count=2):
        while len(got) < 2:
            connection.drain_events(timeout=broker.PATIENCE)
        assert queue.queue_declare(passive=True).message_count == 3
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)


def test_dead_letters_ttl_and_priorities_as_queue_arguments(connection):
    channel = connection.default_channel
    grave = exclusive()(channel)
    grave.declare()
    queue = exclusive(message_ttl=0.05, max_priority=3, queue_arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave.name})(channel)
    queue.declare()
    connection.Producer().publish("brief", routing_key=queue.name, priority=2)
    (body, message), = receive(connection, grave, 1)
    assert body == "brief" and message.headers["x-death"][0]["reason"] == "expired"


@pytest.mark.parametrize("error, fault", [
    (amqp.exceptions.NotFound, lambda channel: channel.queue_declare(broker.unique(), passive=True)),
    (amqp.exceptions.AccessRefused, lambda channel: channel.queue_declare("amq." + broker.unique())),
    (amqp.exceptions.PreconditionFailed, lambda channel: channel.exchange_declare("amq.direct", "fanout", durable=True)),
])
def test_errors_have_their_exceptions(connection, error, fault):
    with pytest.raises(error) as caught:
        fault(connection.channel())
    assert caught.value.reply_code in (403, 404, 406)
    assert caught.value.method_sig in ((50, 10), (40, 10))


def test_a_wrong_password_is_access_refused():
    target = broker.parameters()
    with pytest.raises(amqp.exceptions.AccessRefused):
        kombu.Connection(hostname=target.host, port=target.port, userid=broker.user(), password="no", transport="amqp").connect()


def test_large_bodies_travel(connection):
    queue = exclusive()(connection.default_channel)
    queue.declare()
    connection.Producer().publish("y" * 5_000_000, routing_key=queue.name)
    assert len(receive(connection, queue, 1)[0][0]) == 5_000_000


def test_a_simple_queue_is_a_queue(connection):
    with connection.SimpleQueue(broker.unique(), queue_opts={"auto_delete": True, "durable": False}) as simple:
        simple.put({"n": 1})
        message = simple.get(timeout=broker.PATIENCE)
        assert message.payload == {"n": 1}
        message.ack()


def test_a_transactional_channel_of_py_amqp(connection):
    channel = connection.channel()
    queue = exclusive()(connection.default_channel)
    queue.declare()
    channel.tx_select()
    connection.Producer(channel).publish("x", routing_key=queue.name)
    assert queue.queue_declare(passive=True).message_count == 0
    channel.tx_commit()
    assert queue.queue_declare(passive=True).message_count == 1


def test_producers_of_a_pool_reconnect(proxy):
    target = broker.parameters()
    connection = kombu.Connection(
        hostname="127.0.0.1", port=proxy.port, userid=broker.user(), password=broker.password(),
        virtual_host=target.virtual_host, transport="amqp",
        transport_options={"max_retries": 20, "interval_start": 0, "confirm_publish": True})
    queue = kombu.Queue(broker.unique(), durable=False, expires=60)
    with producers[connection].acquire(block=True) as producer:
        producer.publish("before", routing_key=queue.name, declare=[queue], retry=True)
        proxy.cut()
        producer.publish("after", routing_key=queue.name, declare=[queue], retry=True,
                         retry_policy={"interval_start": 0.1, "interval_step": 0.1, "max_retries": 20})
    with kombu.Connection(broker.URI) as fresh:
        bound = queue(fresh.default_channel)
        bodies = [body for body, _message in receive(fresh, bound, 2)]
        assert bodies == ["before", "after"]
        bound.delete()
    connection.close()


def test_heartbeats_keep_a_quiet_connection_open():
    with kombu.Connection(broker.URI, heartbeat=1) as connection:
        queue = exclusive()(connection.default_channel)
        queue.declare()
        # Every heartbeat of the broker starts drain_events' timeout anew, so that has to be the shorter of the two.
        for _ in range(25):
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.15)
            connection.heartbeat_check()
        connection.Producer().publish("alive", routing_key=queue.name)
        assert receive(connection, queue, 1)[0][0] == "alive"
