"""What needs an operator: permissions, policies, limits, alarms, forced closes. Uses the tool named by LEPUS_CTL."""

import pika
import pytest

import broker
from deliveries import Inbox, arrived, channel_closed, depth, own_exchange, own_queue, round_trip, send, take


@pytest.fixture
def other_user(ctl, connect):
    """Makes a user with permissions (configure, write, read) and opens a connection as that user."""
    made = []

    def make(configure=".*", write=".*", read=".*", tags=()):
        name = broker.unique("user")
        ctl("add_user", name, "secret")
        made.append(name)
        if tags:
            ctl("set_user_tags", name, *tags)
        if configure is not None:
            ctl("set_permissions", "-p", "/", name, configure, write, read)
        return connect(credentials=pika.PlainCredentials(name, "secret"))

    make.names = made
    yield make
    for name in made:
        ctl("delete_user", name)


def test_a_user_without_permissions_on_a_vhost_is_refused(other_user):
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        other_user(configure=None)


FORBIDDEN = {
    "queue.declare": lambda channel, queue: channel.queue_declare(broker.unique("forbidden")),
    "queue.delete": lambda channel, queue: channel.queue_delete(queue),
    "queue.purge": lambda channel, queue: channel.queue_purge(queue),
    "queue.bind": lambda channel, queue: channel.queue_bind(queue, "amq.direct", "k"),
    "basic.get": lambda channel, queue: channel.basic_get(queue),
    "basic.consume": lambda channel, queue: channel.basic_consume(queue, print),
    "exchange.declare": lambda channel, queue: channel.exchange_declare(broker.unique("forbidden"), "direct"),
    "exchange.delete": lambda channel, queue: channel.exchange_delete("e2e.forbidden"),
    "exchange.bind": lambda channel, queue: channel.exchange_bind("amq.topic", "amq.direct", "k"),
    "basic.publish": lambda channel, queue: (channel.basic_publish("amq.direct", "k", b"x"), round_trip(channel)),
}


def test_every_operation_needs_its_permission(other_user, channel, leftovers):
    queue = leftovers.queue()
    channel.queue_declare(queue, durable=True)
    connection = other_user(configure="^allowed", write="^allowed", read="^allowed")
    for name, operation in FORBIDDEN.items():
        with channel_closed(403, "ACCESS_REFUSED"):
            operation(connection.channel(), queue)


def test_permitted_names_work(other_user, leftovers):
    connection = other_user(configure="^e2e\\.", write="^(e2e\\.|amq\\.default)", read="^e2e\\.")
    channel = connection.channel()
    queue = leftovers.queue()
    channel.queue_declare(queue, durable=True)
    send(channel, queue, "x")
    assert take(channel, queue).body == b"x"


def test_topic_permissions_limit_the_keys(other_user, ctl):
    connection = other_user()
    ctl("set_topic_permissions", "-p", "/", other_user.names[0], "amq.topic", "^mine", "^mine")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "mine.a", b"x")
    with channel_closed(403):
        channel.basic_publish("amq.topic", "yours.a", b"x")


def test_an_impersonator_may_publish_for_others(other_user, channel):
    impersonating = other_user(tags=["impersonator"]).channel()
    queue = own_queue(channel)
    send(impersonating, queue, "x", user_id="anybody")
    assert take(channel, queue).properties.user_id == "anybody"


@pytest.fixture
def policy(ctl):
    """Sets policies and clears them when the test ends."""
    made = []

    def put(pattern, definition, apply_to="queues", priority="1"):
        name = broker.unique("policy")
        ctl("set_policy", "-p", "/", "--priority", priority, "--apply-to", apply_to, name, pattern, definition)
        made.append(name)
        return name

    put.clear = lambda name: (ctl("clear_policy", "-p", "/", name), made.remove(name))
    yield put
    for name in made:
        ctl("clear_policy", "-p", "/", name)


def test_a_policy_acts_on_queues_that_are_already_there(policy, channel):
    name = broker.unique("policed")
    grave = own_queue(channel)
    channel.queue_declare(name, exclusive=True)
    name_of_policy = policy(f"^{name}$", '{"message-ttl": 0, "dead-letter-exchange": "", "dead-letter-routing-key": "%s"}' % grave)
    broker.until(lambda: (send(channel, name, "x"), depth(channel, grave))[1], pause=channel.connection.sleep)
    policy.clear(name_of_policy)
    broker.until(lambda: (send(channel, name, "y"), depth(channel, name))[1], pause=channel.connection.sleep)


def test_the_smaller_of_argument_and_policy_counts(policy, channel):
    name = broker.unique("policed")
    policy(f"^{name}$", '{"max-length": 2}')
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 5})
    send(channel, name, *range(10))
    assert depth(channel, name) == 2


def test_a_policy_gives_an_exchange_its_alternate(policy, channel):
    alternate, name = own_exchange(channel, "fanout"), broker.unique("policed")
    spill = own_queue(channel)
    channel.queue_bind(spill, alternate)
    policy(f"^{name}$", '{"alternate-exchange": "%s"}' % alternate, apply_to="exchanges")
    channel.exchange_declare(name, "direct", auto_delete=True)
    channel.basic_publish(name, "nowhere", b"x")
    assert arrived(channel, spill).body == b"x"
    channel.exchange_delete(name)


def test_a_vhost_comes_and_goes_with_its_connections(ctl, connect):
    name = broker.unique("vhost")
    ctl("add_vhost", name)
    ctl("set_permissions", "-p", name, broker.user(), ".*", ".*", ".*")
    connection = connect(virtual_host=name)
    channel = connection.channel()
    channel.queue_declare("only here", durable=True)
    with channel_closed(404):
        connect().channel().queue_declare("only here", passive=True)
    ctl("delete_vhost", name)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.sleep(broker.PATIENCE)
    assert caught.value.reply_code == 320
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connect(virtual_host=name)


def test_an_operator_may_close_every_connection_of_a_vhost(ctl, connect):
    name = broker.unique("vhost")
    ctl("add_vhost", name)
    try:
        ctl("set_permissions", "-p", name, broker.user(), ".*", ".*", ".*")
        connection = connect(virtual_host=name)
        ctl("close_all_connections", "-p", name, "maintenance")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            connection.sleep(broker.PATIENCE)
        assert caught.value.reply_code == 320 and "CONNECTION_FORCED" in caught.value.reply_text
    finally:
        ctl("delete_vhost", name)


def test_an_alarm_blocks_publishers_only(ctl, connect):
    """Touches the whole broker: the memory watermark is lowered for a moment and put back."""
    publisher, consumer = connect(), connect()
    told = []
    publisher.add_on_connection_blocked_callback(lambda _connection, frame: told.append("blocked: " + frame.method.reason))
    publisher.add_on_connection_unblocked_callback(lambda _connection, _frame: told.append("unblocked"))
    outgoing, incoming = publisher.channel(), consumer.channel()
    queue = own_queue(incoming)
    send(outgoing, queue, "before")
    ctl("set_vm_memory_high_watermark", "0.00001")
    try:
        outgoing.basic_publish("", queue, b"while blocked")
        broker.until(lambda: publisher.process_data_events(0.05) or told, pause=lambda _seconds: None)
        assert told[0].startswith("blocked")
        assert take(incoming, queue).body == b"before"
        own_queue(consumer.channel())
        closing = connect()
        closing.channel()
        closing.close()
    finally:
        ctl("set_vm_memory_high_watermark", "0.4")
    broker.until(lambda: publisher.process_data_events(0.05) or told[-1] == "unblocked", pause=lambda _seconds: None)
    assert arrived(incoming, queue).body == b"while blocked"
