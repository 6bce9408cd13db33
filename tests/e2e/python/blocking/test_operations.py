"""What needs an operator: permissions, policies, limits, alarms, forced closes. Uses the tool named by LEPUS_CTL."""

import os

import pika
import pytest

import broker
import operators
from deliveries import arrived, channel_closed, depth, own_exchange, own_queue, round_trip, send, take


@pytest.fixture
def other_user(operator, connect):
    """Makes a user with permissions (configure, write, read) and opens a connection as that user."""
    made = []

    def make(configure=".*", write=".*", read=".*", tags=()):
        name = broker.unique("user")
        operator.add_user(name, "secret", tags)
        made.append(name)
        if configure is not None:
            operator.permit(name, configure, write, read)
        return connect(credentials=pika.PlainCredentials(name, "secret"))

    make.names = made
    yield make
    for name in made:
        operator.delete_user(name)


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


def test_topic_permissions_limit_the_keys(other_user, operator):
    connection = other_user()
    operator.permit_topic(other_user.names[0], "amq.topic", "^mine", "^mine")
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
def policy(operator):
    """Sets policies and clears them when the test ends."""
    made = []

    def put(pattern, definition, apply_to="queues"):
        name = broker.unique("policy")
        operator.set_policy(name, pattern, definition, apply_to)
        made.append(name)
        return name

    put.clear = lambda name: (operator.clear_policy(name), made.remove(name))
    yield put
    for name in made:
        operator.clear_policy(name)


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


@pytest.fixture
def vhost(operator):
    """A virtual host in which the test's user may do everything."""
    name = broker.unique("vhost")
    operator.add_vhost(name)
    operator.permit(broker.user(), ".*", ".*", ".*", vhost=name)
    yield name
    operator.delete_vhost(name)


def test_vhosts_are_worlds_of_their_own(connect, vhost):
    inside = connect(virtual_host=vhost).channel()
    inside.queue_declare("only here", durable=True)
    inside.exchange_declare("amq.direct", passive=True)
    with channel_closed(404, "in vhost '/'"):
        connect().channel().queue_declare("only here", passive=True)
    send(inside, "only here", "x")
    assert take(inside, "only here").body == b"x"


def test_a_vhost_goes_with_its_connections(operator, connect):
    name = broker.unique("vhost")
    operator.add_vhost(name)
    operator.permit(broker.user(), ".*", ".*", ".*", vhost=name)
    connection = connect(virtual_host=name)
    connection.channel().queue_declare("only here", durable=True)
    operator.delete_vhost(name)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.sleep(broker.PATIENCE)
    assert caught.value.reply_code == 320
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connect(virtual_host=name)


def test_an_operator_may_close_every_connection_of_a_vhost(operator, connect, vhost):
    connection = connect(virtual_host=vhost)
    operator.close_connections(vhost, "maintenance")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.sleep(broker.PATIENCE)
    assert caught.value.reply_code == 320 and "CONNECTION_FORCED" in caught.value.reply_text


@pytest.fixture
def short_of_memory(request):
    """A broker that can be brought to its limit and back: (address, press, relieve).

    LEPUS_CRAMPED_URI names a broker with some 64 MiB of memory and of disk, which are filled with messages. Without one the
    operator lowers the limit of the broker under test, which blocks everybody's publishers for a moment.
    """
    address = os.environ.get("LEPUS_CRAMPED_URI")
    if address:
        ballast = broker.unique("ballast")

        def press(publisher, told):
            channel = publisher.channel()
            channel.queue_declare(ballast, durable=False)
            for _ in range(400):
                if told:
                    # Room that was left over is found and used up, too.
                    publisher.sleep(1)
                    if told[-1] != "unblocked":
                        del told[:-1]
                        return
                    told.clear()
                channel.basic_publish("", ballast, bytes(1_000_000))
                # Whether it blocked is told before this is answered. A publish more would be held, and what follows it.
                channel.queue_declare(ballast, passive=True)
                publisher.process_data_events(0)

        yield address, press, lambda channel: channel.queue_delete(ballast)
    else:
        operator = request.getfixturevalue("operator")
        if isinstance(operator, operators.Lepus):
            pytest.skip("LEPUS_CRAMPED_URI names no broker with little memory")
        yield broker.URI, lambda _publisher, _told: operator.lower_memory_limit(), lambda _channel: operator.restore_memory_limit()


def test_an_alarm_blocks_publishers_only(short_of_memory):
    address, press, relieve = short_of_memory
    opened = []

    def connect():
        opened.append(pika.BlockingConnection(pika.URLParameters(address)))
        return opened[-1]

    publisher, consumer = connect(), connect()
    told = []
    publisher.add_on_connection_blocked_callback(lambda _connection, frame: told.append("blocked: " + frame.method.reason))
    publisher.add_on_connection_unblocked_callback(lambda _connection, _frame: told.append("unblocked"))
    outgoing, incoming = publisher.channel(), consumer.channel()
    queue = own_queue(incoming)
    send(outgoing, queue, "before")
    try:
        press(publisher, told)
        outgoing.basic_publish("", queue, b"while blocked")
        broker.until(lambda: publisher.process_data_events(0.05) or told, pause=lambda _seconds: None)
        assert told[0].startswith("blocked: ") and len(told) == 1
        assert take(incoming, queue).body == b"before"
        own_queue(consumer.channel())
        connect().close()
    finally:
        relieve(incoming)
    broker.until(lambda: publisher.process_data_events(0.05) or told[-1] == "unblocked", pause=lambda _seconds: None)
    assert arrived(incoming, queue).body == b"while blocked"
    for connection in opened:
        if connection.is_open:
            connection.close()


def test_a_blocked_publisher_that_stops_publishing_can_still_close(short_of_memory):
    if broker.runs_on_erlang():
        pytest.skip("the Erlang broker does not read the close of a blocked connection before the alarm ends")
    address, press, relieve = short_of_memory
    publisher, other = (pika.BlockingConnection(pika.URLParameters(address)) for _ in range(2))
    told = []
    publisher.add_on_connection_blocked_callback(lambda _connection, frame: told.append(frame.method.reason))
    publisher.add_on_connection_unblocked_callback(lambda _connection, _frame: told.append("unblocked"))
    try:
        press(publisher, told)
        publisher.close()
        assert len(told) == 1
    finally:
        relieve(other.channel())
        other.close()
