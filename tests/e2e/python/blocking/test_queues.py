"""Queues: declaration, names, exclusivity, equivalence, leases, binding, purge and delete."""

import pika
import pytest

import broker
from deliveries import (Inbox, arrived, bodies, channel_closed, consumers, depth, own_exchange, own_queue,
                        send, take, take_all)


def test_declare_counts_messages_and_consumers(channel):
    name = broker.unique()
    declared = channel.queue_declare(name, exclusive=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 0, 0)
    send(channel, name, 1, 2, 3)
    assert depth(channel, name) == 3
    Inbox(channel, name).wait(3)
    assert (depth(channel, name), consumers(channel, name)) == (0, 1)


def test_the_broker_names_a_nameless_queue(channel):
    one, two = own_queue(channel), own_queue(channel)
    assert one.startswith("amq.gen-") and two.startswith("amq.gen-") and one != two
    assert depth(channel, one) == 0


def test_a_queue_the_broker_named_may_be_redeclared(channel):
    if broker.runs_on_erlang():
        pytest.skip("the Erlang broker refuses every active declare of a reserved name")
    queue = own_queue(channel)
    assert channel.queue_declare(queue, exclusive=True).method.queue == queue


def test_an_empty_name_means_the_last_declared_queue(channel):
    queue = own_queue(channel)
    send(channel, queue, "last")
    assert take(channel, "").body == b"last"
    channel.queue_bind("", "amq.direct", "")
    channel.basic_publish("amq.direct", queue, b"empty key becomes the queue's name")
    assert arrived(channel, queue)


def test_get_from_no_queue_on_a_fresh_channel_is_not_found(channel):
    with channel_closed(404, "no previously declared queue"):
        channel.basic_get("")


def test_reserved_names_are_refused(channel):
    with channel_closed(403, "amq."):
        channel.queue_declare("amq." + broker.unique())


def test_passive_declare_ignores_flags_and_arguments(channel):
    queue = own_queue(channel, max_length=5)
    channel.queue_declare(queue, passive=True, durable=True, auto_delete=True, arguments={"x-max-length": 9})


def test_passive_declare_of_a_missing_queue_is_not_found(channel):
    name = broker.unique()
    with channel_closed(404, f"no queue '{name}' in vhost '/'"):
        channel.queue_declare(name, passive=True)


@pytest.mark.parametrize("first, second, argument", [
    ({"durable": True}, {"durable": False}, "durable"),
    ({"durable": False}, {"durable": True}, "durable"),
    ({"auto_delete": True}, {"auto_delete": False}, "auto_delete"),
    ({"arguments": {"x-message-ttl": 1000}}, {"arguments": {"x-message-ttl": 2000}}, "x-message-ttl"),
    ({"arguments": {"x-message-ttl": 60000}}, {}, "x-message-ttl"),
    ({}, {"arguments": {"x-max-length": 3}}, "x-max-length"),
    ({"arguments": {"x-max-length-bytes": 3}}, {"arguments": {"x-max-length-bytes": 4}}, "x-max-length-bytes"),
    ({"arguments": {"x-expires": 60000}}, {"arguments": {"x-expires": 60001}}, "x-expires"),
    ({"arguments": {"x-dead-letter-exchange": "a"}}, {"arguments": {"x-dead-letter-exchange": "b"}}, "x-dead-letter-exchange"),
    ({"arguments": {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "a"}},
     {"arguments": {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "b"}}, "x-dead-letter-routing-key"),
    ({"arguments": {"x-max-priority": 3}}, {"arguments": {"x-max-priority": 4}}, "x-max-priority"),
    ({"arguments": {"x-overflow": "drop-head"}}, {"arguments": {"x-overflow": "reject-publish"}}, "x-overflow"),
    ({"durable": True, "arguments": {"x-queue-type": "classic"}},
     {"durable": True, "arguments": {"x-queue-type": "quorum"}}, "x-queue-type"),
    ({"arguments": {"x-single-active-consumer": True}}, {"arguments": {"x-single-active-consumer": False}},
     "x-single-active-consumer"),
])
def test_a_redeclare_that_differs_is_refused_and_names_the_argument(channel, leftovers, first, second, argument):
    name = leftovers.queue()
    channel.queue_declare(name, **first)
    channel.queue_declare(name, **first)
    with channel_closed(406, f"inequivalent arg '{argument}' for queue '{name}' in vhost '/'"):
        channel.queue_declare(name, **second)


def test_an_exclusive_queue_redeclared_as_shared_is_locked(channel):
    name = broker.unique()
    channel.queue_declare(name, exclusive=True)
    with channel_closed(405, "RESOURCE_LOCKED", name):
        channel.queue_declare(name, exclusive=False)


def test_unknown_arguments_are_ignored_also_when_they_change(channel):
    name = broker.unique()
    channel.queue_declare(name, exclusive=True, arguments={"x-colour": "red", "note": {"deep": [1, 2]}})
    channel.queue_declare(name, exclusive=True, arguments={"x-shape": 3})


@pytest.mark.parametrize("arguments", [
    {"x-expires": 0}, {"x-expires": -1}, {"x-expires": "1000"},
    {"x-message-ttl": -1}, {"x-message-ttl": "10"}, {"x-message-ttl": {"a": 1}},
    {"x-max-length": -1}, {"x-max-length": "many"}, {"x-max-length-bytes": -1},
    {"x-max-priority": -1}, {"x-max-priority": 256}, {"x-max-priority": "high"},
    {"x-dead-letter-exchange": 7}, {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": 7},
    {"x-dead-letter-routing-key": "key without exchange"},
    {"x-overflow": "explode"}, {"x-overflow": 5},
    {"x-queue-type": "no-such-kind"}, {"x-single-active-consumer": "yes"},
], ids=str)
def test_an_argument_of_wrong_type_or_range_is_refused(channel, arguments):
    with channel_closed(406, "PRECONDITION_FAILED"):
        channel.queue_declare(broker.unique(), exclusive=True, arguments=arguments)


@pytest.mark.parametrize("arguments", [
    {"x-message-ttl": 0}, {"x-max-length": 0}, {"x-max-length-bytes": 0}, {"x-max-priority": 255}, {"x-max-priority": 1},
    {"x-expires": 1}, {"x-dead-letter-exchange": ""}, {"x-queue-mode": "lazy"}, {"x-queue-type": "classic"},
    {"x-overflow": "reject-publish-dlx"}, {"x-message-ttl": 2**31}, {"x-queue-version": 2},
], ids=str)
def test_an_argument_at_the_edge_of_its_range_is_accepted(channel, arguments):
    assert channel.queue_declare("", exclusive=True, arguments=arguments)


LOCKED = {
    "declare": lambda channel, queue: channel.queue_declare(queue, exclusive=True),
    "passive declare": lambda channel, queue: channel.queue_declare(queue, passive=True),
    "bind": lambda channel, queue: channel.queue_bind(queue, "amq.direct", "k"),
    "unbind": lambda channel, queue: channel.queue_unbind(queue, "amq.direct", "k"),
    "consume": lambda channel, queue: channel.basic_consume(queue, print),
    "get": lambda channel, queue: channel.basic_get(queue),
    "purge": lambda channel, queue: channel.queue_purge(queue),
    "delete": lambda channel, queue: channel.queue_delete(queue),
}


@pytest.mark.parametrize("use", LOCKED)
def test_an_exclusive_queue_is_locked_to_its_connection(channel, connect, use):
    queue = broker.unique()
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, "amq.direct", "k")
    other = connect().channel()
    with channel_closed(405, "RESOURCE_LOCKED", queue):
        LOCKED[use](other, queue)


def test_an_exclusive_queue_accepts_messages_from_everybody(channel, connect):
    queue = own_queue(channel)
    send(connect().channel(), queue, "hello")
    assert take(channel, queue).body == b"hello"


def test_an_exclusive_queue_is_gone_once_its_connection_closed(connect):
    name = broker.unique()
    owner = connect()
    owner.channel().queue_declare(name, exclusive=True, durable=True)
    owner.close()
    with channel_closed(404):
        connect().channel().queue_declare(name, passive=True)


def test_an_exclusive_queue_is_gone_once_its_connection_is_lost(connect, proxy):
    name = broker.unique()
    connect(host="127.0.0.1", port=proxy.port).channel().queue_declare(name, exclusive=True)
    proxy.cut()
    watcher = connect()

    def gone():
        try:
            watcher.channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return error.reply_code == 404

    broker.until(gone, pause=watcher.sleep)


def test_an_auto_delete_queue_is_gone_before_cancel_ok(channel):
    name = broker.unique()
    channel.queue_declare(name, auto_delete=True)
    one = Inbox(channel, name)
    two = Inbox(channel.connection.channel(), name)
    channel.basic_cancel(one.tag)
    assert consumers(channel, name) == 1
    two.channel.basic_cancel(two.tag)
    with channel_closed(404):
        channel.queue_declare(name, passive=True)


def test_an_auto_delete_queue_goes_with_its_consumers_channel(channel):
    name = broker.unique()
    channel.queue_declare(name, auto_delete=True)
    other = channel.connection.channel()
    Inbox(other, name)
    other.close()
    with channel_closed(404):
        channel.queue_declare(name, passive=True)


def test_an_auto_delete_queue_that_never_had_a_consumer_stays(channel, connect, leftovers):
    name = leftovers.queue()
    owner = connect()
    owner.channel().queue_declare(name, auto_delete=True)
    owner.close()
    assert depth(channel, name) == 0


def test_binding_a_missing_queue_or_exchange_is_not_found(channel):
    queue = own_queue(channel)
    with channel_closed(404, "no exchange"):
        channel.queue_bind(queue, broker.unique(), "k")
    with channel_closed(404, "no queue"):
        channel.connection.channel().queue_bind(broker.unique(), "amq.direct", "k")


def test_binding_twice_is_one_binding(channel):
    queue, exchange = own_queue(channel), own_exchange(channel, "direct")
    for _ in range(2):
        channel.queue_bind(queue, exchange, "k")
    other = own_queue(channel)
    channel.queue_bind(other, exchange, "keeps the exchange")
    channel.queue_unbind(queue, exchange, "k")
    channel.basic_publish(exchange, "k", b"to nobody")
    assert depth(channel, queue) == 0


def test_unbinding_nothing_is_fine(channel):
    channel.queue_unbind(own_queue(channel), "amq.direct", "never bound")


def test_a_new_queue_of_an_old_name_has_no_old_bindings(channel):
    name, exchange = broker.unique(), own_exchange(channel, "direct")
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, exchange, "k")
    keeper = own_queue(channel)
    channel.queue_bind(keeper, exchange, "k")
    channel.queue_delete(name)
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish(exchange, "k", b"x")
    assert arrived(channel, keeper)
    assert depth(channel, name) == 0


def test_purge_counts_and_drops_only_ready_messages(channel):
    queue = own_queue(channel)
    send(channel, queue, *range(5))
    held = take(channel, queue, auto_ack=False)
    assert channel.queue_purge(queue).method.message_count == 4
    assert depth(channel, queue) == 0
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    assert bodies([arrived(channel, queue)]) == ["0"]


def test_purging_many_small_messages(channel):
    queue = own_queue(channel)
    for _ in range(30_000):
        channel.basic_publish("", queue, b"x")
    broker.until(lambda: depth(channel, queue) == 30_000, pause=channel.connection.sleep)
    assert channel.queue_purge(queue).method.message_count == 30_000
    send(channel, queue, "after")
    assert bodies(take_all(channel, queue)) == ["after"]


def test_delete_tells_the_messages_lost_and_may_be_repeated(channel):
    queue = own_queue(channel)
    send(channel, queue, 1, 2)
    assert channel.queue_delete(queue).method.message_count == 2
    assert channel.queue_delete(queue).method.message_count == 0


def test_delete_if_empty_and_if_unused(channel):
    queue = own_queue(channel)
    send(channel, queue, 1)
    with channel_closed(406, "not empty"):
        channel.connection.channel().queue_delete(queue, if_empty=True)
    inbox = Inbox(channel, queue, auto_ack=True)
    inbox.wait(1)
    with channel_closed(406, "in use"):
        channel.connection.channel().queue_delete(queue, if_unused=True)
    channel.basic_cancel(inbox.tag)
    channel.queue_delete(queue, if_unused=True, if_empty=True)


def test_effects_are_visible_to_other_connections_at_once(connect):
    one, two = connect().channel(), connect().channel()
    for _ in range(50):
        name, exchange = broker.unique(), broker.unique("exchange")
        one.queue_declare(name)
        two.queue_declare(name, passive=True)
        two.exchange_declare(exchange, "direct")
        one.queue_bind(name, exchange, "k")
        send(two, name, "direct")
        two.basic_publish(exchange, "k", b"bound")
        arrived(one, name), arrived(one, name)
        two.queue_delete(name)
        with channel_closed(404):
            one.connection.channel().queue_declare(name, passive=True)
        one.exchange_delete(exchange)


# A lease: a queue with x-expires lives until nobody used it for that long.

def exists(connection, name):
    """Whether a queue is there, asked by a bind, which does not renew a lease."""
    channel = connection.channel()
    try:
        channel.queue_bind(name, "amq.direct", name)
    except pika.exceptions.ChannelClosedByBroker as error:
        assert error.reply_code == 404
        return False
    channel.close()
    return True


def test_an_unused_leased_queue_goes(connection):
    name = broker.unique()
    connection.channel().queue_declare(name, arguments={"x-expires": 2000})
    broker.until(lambda: not exists(connection, name), pause=connection.sleep)


@pytest.mark.parametrize("renewal", ["declare", "passive declare", "get"])
def test_a_lease_is_renewed_by_use(connection, renewal):
    name, channel = broker.unique(), connection.channel()
    arguments = {"x-expires": 2000}
    channel.queue_declare(name, arguments=arguments)
    for _ in range(8):
        connection.sleep(0.4)
        if renewal == "declare":
            channel.queue_declare(name, arguments=arguments)
        elif renewal == "passive declare":
            channel.queue_declare(name, passive=True)
        else:
            channel.basic_get(name)
    assert exists(connection, name)
    channel.queue_delete(name)


def test_a_consumer_holds_the_lease(connection):
    name, channel = broker.unique(), connection.channel()
    channel.queue_declare(name, arguments={"x-expires": 1000})
    inbox = Inbox(channel, name)
    connection.sleep(1.5)
    assert exists(connection, name)
    channel.basic_cancel(inbox.tag)
    broker.until(lambda: not exists(connection, name), pause=connection.sleep)
