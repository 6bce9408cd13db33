"""Publishing: confirms, returns, properties, bodies, extra routes."""

import datetime
import decimal

import pika
import pytest

import broker
from deliveries import Inbox, arrived, bodies, channel_closed, depth, own_exchange, own_queue, round_trip, send, take, take_all


def collect(channel):
    """Lists that receive what the broker says of publishes on this channel: (kind, tag, multiple)."""
    told = []
    inner = channel._impl
    inner.add_callback(lambda frame: told.append(("ack", frame.method.delivery_tag, frame.method.multiple)),
                       [pika.spec.Basic.Ack], one_shot=False)
    inner.add_callback(lambda frame: told.append(("nack", frame.method.delivery_tag, frame.method.multiple)),
                       [pika.spec.Basic.Nack], one_shot=False)
    inner.add_on_return_callback(lambda _channel, method, _properties, _body: told.append(("return", method.reply_code, method.routing_key)))
    return told


def confirming(channel):
    """Puts a channel into confirm mode without pika's waiting for every single confirm."""
    told = collect(channel)
    done = []
    channel._impl.confirm_delivery(ack_nack_callback=lambda _frame: None, callback=done.append)
    broker.until(lambda: done, pause=channel.connection.sleep)
    return told


def confirmed_through(told):
    """The highest tag up to which everything is settled, and the set of nacked tags."""
    open_tags, nacked, highest = set(), set(), 0
    for kind, tag, multiple in told:
        if kind == "return":
            continue
        tags = range(highest + 1, tag + 1) if multiple else [tag]
        if kind == "nack":
            nacked |= set(tags)
        open_tags |= set(tags)
        while highest + 1 in open_tags:
            highest += 1
    return highest, nacked


def test_every_publish_is_confirmed_once_and_in_sequence(channel):
    queue = own_queue(channel)
    told = confirming(channel)
    for number in range(500):
        channel.basic_publish("", queue, str(number).encode())
    broker.until(lambda: confirmed_through(told)[0] == 500, pause=channel.connection.sleep)
    assert bodies(take_all(channel, queue)) == [str(number) for number in range(500)]


def test_confirm_select_may_be_repeated(channel):
    queue = own_queue(channel)
    channel.confirm_delivery()
    channel._impl._send_method(pika.spec.Confirm.Select(nowait=True))
    for body in (b"a", b"b"):
        channel.basic_publish("", queue, body)
    assert bodies(take_all(channel, queue)) == ["a", "b"]


def test_persistent_messages_in_a_durable_queue_are_confirmed(channel, leftovers):
    queue = leftovers.queue()
    channel.queue_declare(queue, durable=True)
    send(channel, queue, *range(50), delivery_mode=2)
    assert depth(channel, queue) == 50


def test_unroutable_publishes_are_confirmed(channel):
    channel.confirm_delivery()
    channel.basic_publish("", broker.unique("nowhere"), b"x")
    channel.basic_publish("amq.direct", broker.unique("nowhere"), b"x", pika.BasicProperties(delivery_mode=2))


@pytest.mark.parametrize("arguments", [{"message_ttl": 0}, {"max_length": 0}, {"max_length": 1}, {"max_length_bytes": 1}])
def test_publishes_dropped_by_the_queue_are_confirmed(channel, arguments):
    queue = own_queue(channel, **arguments)
    told = confirming(channel)
    for _ in range(20):
        channel.basic_publish("", queue, b"xyz", pika.BasicProperties(delivery_mode=2))
    broker.until(lambda: confirmed_through(told)[0] == 20, pause=channel.connection.sleep)
    assert not confirmed_through(told)[1]


def test_publishes_to_purged_and_deleted_queues_are_confirmed(channel, leftovers):
    queue = leftovers.queue()
    channel.queue_declare(queue, durable=True)
    other = channel.connection.channel()
    told = confirming(channel)
    for number in range(300):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
        if number == 100:
            other.queue_purge(queue)
        if number == 200:
            other.queue_delete(queue)
    broker.until(lambda: confirmed_through(told)[0] == 300, pause=channel.connection.sleep)


def test_a_full_queue_that_rejects_nacks_the_publisher(channel):
    queue = own_queue(channel, max_length=2, overflow="reject-publish")
    channel.confirm_delivery()
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body)
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"3")
    assert bodies(take_all(channel, queue)) == ["1", "2"]
    channel.basic_publish("", queue, b"4")


def test_an_unroutable_mandatory_message_returns_before_its_confirm(channel):
    told = confirming(channel)
    for number in range(5):
        channel.basic_publish("", f"{broker.unique('nowhere')}", b"x", mandatory=True)
        broker.until(lambda: confirmed_through(told)[0] == number + 1, pause=channel.connection.sleep)
    kinds = [entry[0] for entry in told]
    assert kinds == ["return", "ack"] * 5
    assert {entry[1] for entry in told if entry[0] == "return"} == {312}


def test_a_return_carries_the_message_as_it_was(channel):
    channel.confirm_delivery()
    key, body = broker.unique("nowhere"), bytes(200_000)
    properties = pika.BasicProperties(content_type="text/x", headers={"a": 1}, message_id="m", priority=3, delivery_mode=2)
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("amq.topic", key, body, properties, mandatory=True)
    returned, = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.topic", key)
    assert returned.properties == properties and returned.body == body


def test_a_mandatory_message_without_confirms_returns_too(channel):
    returned = []
    channel.add_on_return_callback(lambda *arguments: returned.append(arguments))
    channel.basic_publish("", broker.unique("nowhere"), b"x", mandatory=True)
    broker.until(lambda: channel.connection.process_data_events(0.05) or returned, pause=lambda _seconds: None)
    assert returned[0][1].reply_text == "NO_ROUTE"


def test_a_routable_mandatory_message_does_not_return(channel):
    queue = own_queue(channel)
    told = confirming(channel)
    channel.basic_publish("", queue, b"x", mandatory=True)
    broker.until(lambda: told, pause=channel.connection.sleep)
    assert told == [("ack", 1, False)]


def test_a_publish_to_a_missing_exchange_closes_the_channel(channel):
    name = broker.unique("exchange")
    with channel_closed(404, f"no exchange '{name}' in vhost '/'"):
        channel.basic_publish(name, "k", b"x")
        round_trip(channel)
    with pytest.raises(pika.exceptions.ChannelWrongStateError):
        channel.basic_publish(name, "k", b"x")


ALL_PROPERTIES = dict(
    content_type="application/json", content_encoding="gzip", delivery_mode=2, priority=7, correlation_id="c",
    reply_to="r", expiration="60000", message_id="m", timestamp=1_700_000_000, type="t", app_id="a", cluster_id="z")


def test_all_fourteen_properties_round_trip(channel):
    queue = own_queue(channel)
    headers = {"plain": "text"}
    send(channel, queue, "x", headers=headers, user_id=broker.user(), **ALL_PROPERTIES)
    properties = take(channel, queue).properties
    assert {name: getattr(properties, name) for name in ALL_PROPERTIES} == ALL_PROPERTIES
    assert (properties.user_id, properties.headers) == (broker.user(), headers)


def test_no_properties_at_all_round_trip(channel):
    queue = own_queue(channel)
    send(channel, queue, "x")
    assert take(channel, queue).properties == pika.BasicProperties()


def test_header_values_of_every_type_round_trip(channel):
    headers = {
        "bool": True, "false": False, "small": 5, "negative": -5, "int": 2**30, "long": 2**40, "min": -2**63,
        "text": "grüße ☃", "empty": "", "decimal": decimal.Decimal("3.14"), "void": None,
        "time": datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc), "bytes": b"\x00\xff\x7f",
        "array": [1, "two", None, [3, {"deep": True}]], "table": {"a": {"b": {"c": [1]}}}, "": "empty name",
        "long text": "x" * 40_000,
    }
    queue = own_queue(channel)
    send(channel, queue, "x", headers=headers)
    got = take(channel, queue).properties.headers
    assert got == headers
    assert list(got) == list(headers)


def test_a_table_nested_ten_deep_round_trips(channel):
    headers = {"leaf": 1}
    for _ in range(10):
        headers = {"down": headers, "list": [headers]} if len(str(headers)) < 2000 else {"down": headers}
    queue = own_queue(channel)
    send(channel, queue, "x", headers=headers)
    assert take(channel, queue).properties.headers == headers


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 131_063, 131_064, 131_065, 262_128, 1_000_000, 5_000_000])
def test_bodies_of_any_size_round_trip(channel, size):
    queue = own_queue(channel)
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    send(channel, queue, body)
    assert take(channel, queue).body == body


def test_a_body_of_seventeen_megabytes_round_trips(channel):
    queue = own_queue(channel)
    body = (bytes(range(251)) * 70_000)[:17 * 1024 * 1024]
    send(channel, queue, body, delivery_mode=2)
    assert Inbox(channel, queue).wait(1)[0].body == body


@pytest.mark.parametrize("expiration", ["", "abc", "-1", "1.5", " 1"])
def test_an_expiration_that_is_no_number_is_refused(channel, expiration):
    with channel_closed(406, "PRECONDITION_FAILED"):
        channel.basic_publish("", own_queue(channel), b"x", pika.BasicProperties(expiration=expiration))
        round_trip(channel)


def test_a_user_id_must_be_the_publishers(channel):
    queue = own_queue(channel)
    send(channel, queue, "mine", user_id=broker.user())
    assert take(channel, queue).properties.user_id == broker.user()
    with channel_closed(406, "user_id"):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(user_id="somebody else"))
        round_trip(channel)


def test_cc_and_bcc_add_routes_and_bcc_is_not_shown(channel):
    one, two, three = (own_queue(channel) for _ in range(3))
    send(channel, one, "x", headers={"CC": [two], "BCC": [three], "other": 1})
    for queue in (one, two, three):
        message, = take_all(channel, queue)
        assert message.properties.headers == {"CC": [two], "other": 1}
        assert message.method.routing_key == one


def test_cc_to_the_same_queue_is_one_copy(channel):
    queue = own_queue(channel)
    send(channel, queue, "x", headers={"CC": [queue, queue], "BCC": [queue]})
    assert len(take_all(channel, queue)) == 1


def test_cc_keys_work_in_a_topic_exchange_and_through_bindings(channel):
    outer, inner = own_exchange(channel, "topic"), own_exchange(channel, "direct")
    channel.exchange_bind(inner, outer, "#")
    one, two = own_queue(channel), own_queue(channel)
    channel.queue_bind(one, inner, "second.key")
    channel.queue_bind(two, outer, "*.key")
    channel.confirm_delivery()
    channel.basic_publish(outer, "first", b"x", pika.BasicProperties(headers={"CC": ["second.key"]}))
    assert (depth(channel, one), depth(channel, two)) == (1, 1)


@pytest.mark.parametrize("headers", [{"CC": "text"}, {"BCC": 1}, {"CC": [1]}])
def test_cc_that_is_no_list_of_names_is_refused(channel, headers):
    if headers == {"CC": [1]} and broker.runs_on_erlang():
        pytest.skip("the Erlang broker accepts numbers in the list")
    queue = own_queue(channel)
    with channel_closed(406):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(headers=headers))
        round_trip(channel)


def test_a_slow_consumer_of_large_messages_gets_them_all(channel, connect):
    queue = own_queue(channel)
    inbox = Inbox(channel, queue, auto_ack=True)
    sender = connect().channel()
    body = bytes(300_000)
    for _ in range(60):
        sender.basic_publish("", queue, body)
    round_trip(sender)
    assert all(message.body == body for message in inbox.wait(60))


def test_messages_of_one_publisher_keep_their_order(channel, connect):
    queue = own_queue(channel)
    sender = connect().channel()
    inbox = Inbox(channel, queue, auto_ack=True)
    for number in range(5000):
        sender.basic_publish("", queue, str(number).encode())
    assert bodies(inbox.wait(5000)) == [str(number) for number in range(5000)]


def test_a_message_may_reach_a_hundred_queues(channel):
    exchange = own_exchange(channel, "fanout")
    queues = [own_queue(channel) for _ in range(100)]
    for queue in queues:
        channel.queue_bind(queue, exchange)
    channel.confirm_delivery()
    channel.basic_publish(exchange, "", b"to all")
    assert [arrived(channel, queue).body for queue in queues] == [b"to all"] * 100
