"""Codes, class and method ids and wording of the errors that end a channel or a connection."""

import pytest
from pika import spec

import broker
from wire_client import Wire


@pytest.fixture
def wire():
    """A connection with channel 1 open."""
    client = Wire()
    client.open()
    client.open_channel()
    yield client
    client.close()


def missing():
    """A name of nothing."""
    return broker.unique("missing")


SOFT = {
    "queue.declare passive": (404, lambda: spec.Queue.Declare(queue=missing(), passive=True)),
    "queue.declare reserved": (403, lambda: spec.Queue.Declare(queue="amq." + missing())),
    "queue.declare no last queue": (404, lambda: spec.Queue.Declare(queue="", passive=True)),
    "queue.purge": (404, lambda: spec.Queue.Purge(queue=missing())),
    "queue.bind": (404, lambda: spec.Queue.Bind(queue=missing(), exchange="amq.direct")),
    "exchange.declare passive": (404, lambda: spec.Exchange.Declare(exchange=missing(), passive=True)),
    "exchange.declare reserved": (403, lambda: spec.Exchange.Declare(exchange="amq." + missing())),
    "exchange.declare default": (403, lambda: spec.Exchange.Declare(exchange="", type="direct")),
    "exchange.declare other type": (406, lambda: spec.Exchange.Declare(exchange="amq.direct", type="fanout", durable=True)),
    "exchange.delete default": (403, lambda: spec.Exchange.Delete(exchange="")),
    "exchange.delete predeclared": (403, lambda: spec.Exchange.Delete(exchange="amq.fanout")),
    "exchange.bind": (404, lambda: spec.Exchange.Bind(destination=missing(), source="amq.direct")),
    "exchange.bind default": (403, lambda: spec.Exchange.Bind(destination="amq.direct", source="")),
    "basic.consume": (404, lambda: spec.Basic.Consume(queue=missing())),
    "basic.get": (404, lambda: spec.Basic.Get(queue=missing())),
    "basic.get no last queue": (404, lambda: spec.Basic.Get(queue="")),
    "basic.ack": (406, lambda: spec.Basic.Ack(delivery_tag=1)),
    "basic.ack of nothing": (406, lambda: spec.Basic.Ack(delivery_tag=0)),
    "basic.reject": (406, lambda: spec.Basic.Reject(delivery_tag=3)),
    "basic.nack": (406, lambda: spec.Basic.Nack(delivery_tag=3)),
    "tx.commit": (406, lambda: spec.Tx.Commit()),
    "tx.rollback": (406, lambda: spec.Tx.Rollback()),
}

WORDS = {403: "ACCESS_REFUSED - ", 404: "NOT_FOUND - ", 405: "RESOURCE_LOCKED - ", 406: "PRECONDITION_FAILED - "}


@pytest.mark.parametrize("name", SOFT)
def test_a_soft_error_closes_only_the_channel_and_names_the_method(wire, name):
    code, make = SOFT[name]
    method = make()
    wire.open_channel(2)
    wire.send(1, method)
    wire.expect_channel_close(code, type(method), words=[WORDS[code]])
    wire.send(2, spec.Basic.Qos())
    wire.expect(spec.Basic.QosOk, 2)
    wire.open_channel(1)


HARD = {
    "basic.qos with a size": (540, lambda: spec.Basic.Qos(prefetch_size=1)),
    "basic.recover without requeue": (540, lambda: spec.Basic.Recover(requeue=False)),
    "channel.flow off": (540, lambda: spec.Channel.Flow(active=False)),
}


@pytest.mark.parametrize("name", HARD)
def test_a_hard_error_closes_the_connection_and_names_the_method(wire, name):
    code, make = HARD[name]
    method = make()
    wire.send(1, method)
    wire.expect_connection_close(code, type(method), words=["NOT_IMPLEMENTED - "])


def test_an_immediate_publish_is_not_implemented(wire):
    wire.publish(1, spec.Basic.Publish(routing_key="x", immediate=True), b"now")
    wire.expect_connection_close(540, spec.Basic.Publish)


def test_the_text_names_resource_and_vhost(wire):
    name = missing()
    wire.send(1, spec.Queue.Declare(queue=name, passive=True))
    wire.expect_channel_close(404, spec.Queue.Declare, words=[f"NOT_FOUND - no queue '{name}' in vhost '/'"])


def test_a_publish_to_a_missing_exchange_closes_the_channel_once(wire):
    name = missing()
    for _ in range(5):
        wire.publish(1, spec.Basic.Publish(exchange=name, routing_key="x"), b"lost")
    wire.expect_channel_close(404, spec.Basic.Publish, words=[f"no exchange '{name}' in vhost '/'"])
    wire.open_channel(1)


def test_a_publish_to_an_internal_exchange_is_refused(wire):
    name = broker.unique("exchange")
    wire.send(1, spec.Exchange.Declare(exchange=name, type="fanout", internal=True, auto_delete=True))
    wire.expect(spec.Exchange.DeclareOk)
    wire.publish(1, spec.Basic.Publish(exchange=name), b"no")
    wire.expect_channel_close(403, spec.Basic.Publish, words=["internal"])
    wire.open_channel(2)
    wire.send(2, spec.Exchange.Delete(exchange=name))
    wire.expect(spec.Exchange.DeleteOk)


def test_a_repeated_consumer_tag_closes_the_connection(wire):
    wire.send(1, spec.Queue.Declare(exclusive=True))
    queue = wire.expect(spec.Queue.DeclareOk).queue
    wire.send(1, spec.Basic.Consume(queue=queue, consumer_tag="one"))
    wire.expect(spec.Basic.ConsumeOk)
    wire.send(1, spec.Basic.Consume(queue=queue, consumer_tag="one"))
    wire.expect_connection_close(530, spec.Basic.Consume, words=["NOT_ALLOWED"])


def test_a_locked_queue_names_itself_in_a_405(wire):
    wire.send(1, spec.Queue.Declare(exclusive=True))
    queue = wire.expect(spec.Queue.DeclareOk).queue
    other = Wire()
    other.open()
    other.open_channel()
    other.send(1, spec.Basic.Get(queue=queue))
    other.expect_channel_close(405, spec.Basic.Get, words=["RESOURCE_LOCKED", queue])
    other.close()


def test_an_unknown_exchange_type_is_a_failed_precondition(wire):
    broker.needs(4, 0, "older brokers close the connection with 503")
    wire.send(1, spec.Exchange.Declare(exchange=broker.unique("exchange"), type="no-such-type"))
    wire.expect_channel_close(406, spec.Exchange.Declare, words=["no-such-type"])


@pytest.mark.parametrize("fault, code", [
    pytest.param({"expiration": "soon"}, 406, id="expiration is not a number"),
    pytest.param({"expiration": "-1"}, 406, id="expiration is negative"),
    pytest.param({"user_id": "somebody else"}, 406, id="user-id of another user"),
    pytest.param({"headers": {"CC": "not an array"}}, 406, id="CC is not an array"),
    pytest.param({"headers": {"BCC": 7}}, 406, id="BCC is not an array"),
])
def test_a_publish_with_a_wrong_property_is_refused(wire, fault, code):
    wire.send(1, spec.Queue.Declare(exclusive=True))
    queue = wire.expect(spec.Queue.DeclareOk).queue
    wire.publish(1, spec.Basic.Publish(routing_key=queue), b"x", spec.BasicProperties(**fault))
    wire.expect_channel_close(code, spec.Basic.Publish, words=["PRECONDITION_FAILED"])


def test_of_several_faults_in_one_publish_the_missing_exchange_is_named_first(wire):
    wire.publish(1, spec.Basic.Publish(exchange=missing()), b"x", spec.BasicProperties(expiration="soon", user_id="nobody"))
    wire.expect_channel_close(404, spec.Basic.Publish)


def test_of_two_wrong_properties_the_expiration_is_named_first(wire):
    wire.publish(1, spec.Basic.Publish(routing_key="x"), b"x",
                 spec.BasicProperties(expiration="soon", headers={"CC": 1}))
    wire.expect_channel_close(406, spec.Basic.Publish, words=["soon"])


NOWAIT = [
    lambda queue: spec.Queue.Declare(queue=queue, passive=True, nowait=True),
    lambda queue: spec.Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k", nowait=True),
    lambda queue: spec.Exchange.Declare(exchange="amq.direct", type="direct", durable=True, nowait=True),
    lambda queue: spec.Basic.Consume(queue=queue, consumer_tag="quiet", nowait=True),
    lambda queue: spec.Basic.Cancel(consumer_tag="quiet", nowait=True),
    lambda queue: spec.Queue.Purge(queue=queue, nowait=True),
    lambda queue: spec.Confirm.Select(nowait=True),
    lambda queue: spec.Queue.Delete(queue=queue, nowait=True),
    lambda queue: spec.Exchange.Delete(exchange=missing(), nowait=True),
]


def test_nowait_methods_are_not_answered(wire):
    wire.send(1, spec.Queue.Declare(exclusive=True))
    queue = wire.expect(spec.Queue.DeclareOk).queue
    for make in NOWAIT:
        wire.send(1, make(queue))
        wire.send(1, spec.Basic.Qos())
        wire.expect(spec.Basic.QosOk, 1)


def test_a_nowait_method_that_fails_still_closes_the_channel(wire):
    wire.send(1, spec.Queue.Declare(queue=missing(), passive=True, nowait=True))
    wire.expect_channel_close(404, spec.Queue.Declare)


@pytest.mark.parametrize("make, answer", [
    (lambda: spec.Queue.Delete(queue=missing()), spec.Queue.DeleteOk),
    (lambda: spec.Queue.Unbind(queue=missing(), exchange=missing()), spec.Queue.UnbindOk),
    (lambda: spec.Exchange.Delete(exchange=missing()), spec.Exchange.DeleteOk),
    (lambda: spec.Exchange.Unbind(destination="amq.fanout", source="amq.topic", routing_key=missing()), spec.Exchange.UnbindOk),
    (lambda: spec.Basic.Cancel(consumer_tag=missing()), spec.Basic.CancelOk),
])
def test_removing_what_is_not_there_is_fine(wire, make, answer):
    wire.send(1, make())
    wire.expect(answer, 1)


def test_access_request_is_answered(wire):
    wire.send(1, spec.Access.Request(realm="/data"))
    wire.expect(spec.Access.RequestOk, 1)
