"""Exchanges: types, arguments, equivalence, bindings between them, alternates."""

import pytest

import broker
from deliveries import arrived, bodies, channel_closed, depth, own_exchange, own_queue, take, take_all


@pytest.fixture
def publish(channel):
    """Publishes and returns once confirmed, on a channel of its own."""
    confirming = channel.connection.channel()
    confirming.confirm_delivery()

    def run(exchange, key, body="x", **properties):
        import pika
        confirming.basic_publish(exchange, key, body.encode(), pika.BasicProperties(**properties))

    return run


def bound(channel, exchange, key="", **arguments):
    """A fresh queue bound to an exchange."""
    queue = own_queue(channel)
    channel.queue_bind(queue, exchange, key, arguments or None)
    return queue


def test_the_predeclared_exchanges_are_there(channel):
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match", "amq.rabbitmq.trace", ""):
        if name:
            channel.exchange_declare(name, passive=True)
    channel.exchange_declare("amq.direct", "direct", durable=True)
    channel.exchange_declare("amq.match", "headers", durable=True)


def test_direct_routes_by_equal_key(channel, publish):
    exchange = own_exchange(channel, "direct")
    red, blue, both = (bound(channel, exchange, key) for key in ("red", "blue", "red"))
    channel.queue_bind(both, exchange, "blue")
    publish(exchange, "red", "r")
    publish(exchange, "blue", "b")
    publish(exchange, "green", "g")
    assert bodies(take_all(channel, red)) == ["r"]
    assert bodies(take_all(channel, blue)) == ["b"]
    assert bodies(take_all(channel, both)) == ["r", "b"]


def test_fanout_ignores_the_key(channel, publish):
    exchange = own_exchange(channel, "fanout")
    queues = [bound(channel, exchange, key) for key in ("", "a", "b")]
    publish(exchange, "whatever", "all")
    assert [bodies(take_all(channel, queue)) for queue in queues] == [["all"]] * 3


TOPICS = {
    "stock.usd.nyse": {"#", "stock.#", "*.*.*", "*.*.nyse", "stock.*.nyse", "#.nyse", "stock.usd.nyse", "#.usd.#"},
    "stock": {"#", "stock.#", "stock", "*"},
    "": {"#", ""},
    "a..b": {"#", "a..b", "a.*.b", "a.#.b", "*.*.*"},
    "stock.usd": {"#", "stock.#", "*.*", "#.usd.#"},
    ".": {"#", "*.*"},
}


def test_topic_matches_words_with_stars_and_hashes(channel, publish):
    exchange = own_exchange(channel, "topic")
    patterns = sorted(set().union(*TOPICS.values()))
    queues = {pattern: bound(channel, exchange, pattern) for pattern in patterns}
    for key in TOPICS:
        publish(exchange, key, key)
    got = {key: set() for key in TOPICS}
    for pattern, queue in queues.items():
        for body in bodies(take_all(channel, queue)):
            got[body].add(pattern)
    assert got == TOPICS


def test_a_topic_key_may_be_255_bytes_long(channel, publish):
    exchange = own_exchange(channel, "topic")
    key = ".".join(["ab"] * 85)
    queue = bound(channel, exchange, "#.ab")
    publish(exchange, key, "long")
    assert take(channel, queue).method.routing_key == key


def test_a_removed_topic_binding_no_longer_matches(channel, publish):
    exchange = own_exchange(channel, "topic")
    queue = bound(channel, exchange, "a.*.#")
    channel.queue_bind(queue, exchange, "a.#.b")
    channel.queue_unbind(queue, exchange, "a.*.#")
    publish(exchange, "a.c", "no")
    publish(exchange, "a.c.b", "yes")
    assert bodies(take_all(channel, queue)) == ["yes"]


HEADERS = [
    ({"x-match": "all", "a": 1, "b": "two"}, {"a": 1, "b": "two", "c": 3}, True),
    ({"x-match": "all", "a": 1, "b": "two"}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": "two"}, {"a": 1}, True),
    ({"x-match": "any", "a": 1, "b": "two"}, {"a": 2, "b": "one"}, False),
    ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
    ({"a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": "all", "a": None}, {"a": "anything"}, True),
    ({"x-match": "all", "a": None}, {"b": "anything"}, False),
    ({"x-match": "all", "a": 1}, {"a": "1"}, False),
    ({"x-match": "all", "a": True}, {"a": True}, True),
    ({"x-match": "all", "x-own": "1", "a": 1}, {"a": 1}, True),
    ({"x-match": "all-with-x", "x-own": "1", "a": 1}, {"a": 1}, False),
    ({"x-match": "all-with-x", "x-own": "1", "a": 1}, {"a": 1, "x-own": "1"}, True),
    ({"x-match": "any-with-x", "x-own": "1", "a": 1}, {"x-own": "1"}, True),
    ({"x-match": "any", "x-own": "1", "a": 1}, {"x-own": "1"}, False),
    ({"x-match": "all"}, {}, True),
]


@pytest.mark.parametrize("binding, headers, matches", HEADERS)
def test_headers_match_by_presence_and_typed_value(channel, publish, binding, headers, matches):
    exchange = own_exchange(channel, "headers")
    queue = bound(channel, exchange, "", **binding)
    publish(exchange, "ignored", headers=headers)
    assert depth(channel, queue) == int(matches)


@pytest.mark.parametrize("value", ["some", 5, ""])
def test_an_unknown_x_match_is_refused_at_bind(channel, value):
    exchange = own_exchange(channel, "headers")
    queue = own_queue(channel)
    with channel_closed(406):
        channel.queue_bind(queue, exchange, "", {"x-match": value, "a": 1})


def test_the_default_exchange_reaches_every_queue_by_name(channel, publish):
    queue = own_queue(channel)
    publish("", queue, "direct")
    assert take(channel, queue).method.exchange == ""


@pytest.mark.parametrize("forbidden", [
    lambda channel, queue: channel.queue_bind(queue, "", "key"),
    lambda channel, queue: channel.queue_unbind(queue, "", queue),
    lambda channel, queue: channel.exchange_bind("amq.direct", "", "key"),
    lambda channel, queue: channel.exchange_bind("", "amq.direct", "key"),
    lambda channel, queue: channel.exchange_delete(""),
], ids=["queue.bind", "queue.unbind", "bind from", "bind to", "delete"])
def test_the_default_exchange_cannot_be_changed(channel, forbidden):
    queue = own_queue(channel)
    with channel_closed(403, "default exchange"):
        forbidden(channel, queue)


@pytest.mark.parametrize("name", ["amq.direct", "amq.topic", "amq.rabbitmq.trace"])
def test_predeclared_exchanges_cannot_be_deleted(channel, name):
    with channel_closed(403):
        channel.exchange_delete(name)


def test_reserved_names_are_refused(channel):
    with channel_closed(403, "amq."):
        channel.exchange_declare("amq." + broker.unique(), "direct")


@pytest.mark.parametrize("option", [
    {"exchange_type": "topic"}, {"durable": True}, {"auto_delete": True}, {"internal": True},
    {"arguments": {"alternate-exchange": "other"}},
], ids=lambda option: next(iter(option)))
def test_a_redeclare_with_other_properties_is_refused_and_names_the_argument(channel, leftovers, option):
    name = leftovers.exchange()
    channel.exchange_declare(name, "direct")
    channel.exchange_declare(name, "direct")
    words = {"exchange_type": "type", "arguments": "alternate-exchange"}.get(next(iter(option)), next(iter(option)))
    with channel_closed(406, "inequivalent arg", words, name):
        channel.exchange_declare(name, **{"exchange_type": "direct", **option})


def test_unknown_arguments_are_ignored_also_when_they_change(channel, leftovers):
    name = leftovers.exchange()
    channel.exchange_declare(name, "direct", arguments={"x-colour": "red"})
    channel.exchange_declare(name, "direct", arguments={"x-colour": 7, "x-other": [1]})


def test_an_unknown_type_is_refused(channel):
    broker.needs(4, 0, "older brokers close the connection with 503")
    with channel_closed(406, "unknown exchange type"):
        channel.exchange_declare(broker.unique(), "no-such-type")


def test_line_feeds_are_stripped_from_names(channel, leftovers):
    name = leftovers.exchange()
    channel.exchange_declare(name[:8] + "\r\n" + name[8:] + "\n", "direct")
    channel.exchange_declare(name, passive=True)


def test_deleting_twice_is_fine(channel):
    name = broker.unique("exchange")
    channel.exchange_declare(name, "direct")
    channel.exchange_delete(name)
    channel.exchange_delete(name)
    with channel_closed(404, name):
        channel.exchange_declare(name, passive=True)


def test_passive_declare_ignores_type_and_flags(channel, leftovers):
    name = leftovers.exchange()
    channel.exchange_declare(name, "topic", durable=True)
    channel.exchange_declare(name, "fanout", passive=True, durable=False)


def test_delete_if_unused_is_refused_while_bound(channel, leftovers):
    name = leftovers.exchange()
    channel.exchange_declare(name, "direct")
    queue = bound(channel, name, "k")
    with channel_closed(406, "in use"):
        channel.exchange_delete(name, if_unused=True)
    channel = channel.connection.channel()
    channel.queue_unbind(queue, name, "k")
    channel.exchange_delete(name, if_unused=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel):
    name = own_exchange(channel, "direct")
    queue = bound(channel, name, "a")
    channel.queue_bind(queue, name, "b")
    channel.queue_unbind(queue, name, "a")
    channel.exchange_declare(name, passive=True)
    channel.queue_unbind(queue, name, "b")
    with channel_closed(404):
        channel.exchange_declare(name, passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_queue(channel):
    name = own_exchange(channel, "direct")
    channel.queue_delete(bound(channel, name, "a"))
    with channel_closed(404):
        channel.exchange_declare(name, passive=True)


def test_auto_delete_cascades_through_exchange_bindings(channel):
    names = [own_exchange(channel, "fanout") for _ in range(3)]
    for source, destination in zip(names, names[1:]):
        channel.exchange_bind(destination, source)
    channel.queue_delete(bound(channel, names[2]))
    for name in names:
        closing = channel.connection.channel()
        with channel_closed(404):
            closing.exchange_declare(name, passive=True)


def test_exchange_bindings_route_once_per_queue_through_loops(channel, publish):
    one, two, three = (own_exchange(channel, kind) for kind in ("fanout", "topic", "direct"))
    channel.exchange_bind(two, one, "")
    channel.exchange_bind(three, two, "k.#")
    channel.exchange_bind(one, three, "k.x")
    channel.exchange_bind(three, one, "")
    queue = bound(channel, three, "k.x")
    channel.queue_bind(queue, one)
    channel.queue_bind(queue, two, "#")
    publish(one, "k.x", "once")
    assert bodies(take_all(channel, queue)) == ["once"]
    channel.exchange_unbind(one, three, "k.x")


def test_an_exchange_binding_can_be_removed(channel, publish):
    source, target = own_exchange(channel, "direct"), own_exchange(channel, "fanout")
    queue = bound(channel, target)
    for key in ("a", "b"):
        channel.exchange_bind(target, source, key)
    channel.exchange_unbind(target, source, "a")
    publish(source, "a", "gone")
    publish(source, "b", "kept")
    assert bodies(take_all(channel, queue)) == ["kept"]


def test_an_internal_exchange_is_reached_only_through_another(channel, publish):
    inner = own_exchange(channel, "fanout", internal=True)
    outer = own_exchange(channel, "fanout")
    channel.exchange_bind(inner, outer)
    queue = bound(channel, inner)
    publish(outer, "", "through")
    assert bodies(take_all(channel, queue)) == ["through"]
    closing = channel.connection.channel()
    with channel_closed(403, "internal"):
        closing.basic_publish(inner, "", b"no")
        closing.exchange_declare("amq.direct", passive=True)


def test_the_alternate_takes_only_what_found_no_queue(channel, publish):
    alternate = own_exchange(channel, "fanout")
    spill = bound(channel, alternate)
    exchange = own_exchange(channel, "direct", arguments={"alternate-exchange": alternate})
    queue = bound(channel, exchange, "known")
    publish(exchange, "known", "a")
    publish(exchange, "unknown", "b")
    assert bodies(take_all(channel, queue)) == ["a"]
    spilled = take(channel, spill)
    assert (spilled.body, spilled.method.exchange, spilled.method.routing_key) == (b"b", exchange, "unknown")


def test_alternates_chain_and_their_cycles_stop(connection, channel):
    import pika
    names = [broker.unique("exchange") for _ in range(3)]
    for at, name in enumerate(names):
        channel.exchange_declare(name, "direct", arguments={"alternate-exchange": names[(at + 1) % 3]})
    try:
        queue = bound(channel, names[2], "deep")
        confirming = connection.channel()
        confirming.confirm_delivery()
        confirming.basic_publish(names[0], "deep", b"found", mandatory=True)
        assert arrived(channel, queue).body == b"found"
        with pytest.raises(pika.exceptions.UnroutableError):
            confirming.basic_publish(names[0], "nowhere", b"lost", mandatory=True)
    finally:
        for name in names:
            channel.exchange_delete(name)


def test_a_missing_alternate_drops_silently(channel, publish):
    exchange = own_exchange(channel, "direct", arguments={"alternate-exchange": broker.unique("missing")})
    queue = bound(channel, exchange, "k")
    publish(exchange, "other", "dropped")
    publish(exchange, "k", "kept")
    assert bodies(take_all(channel, queue)) == ["kept"]


def test_one_queue_bound_twice_gets_one_copy(channel, publish):
    exchange = own_exchange(channel, "topic")
    queue = bound(channel, exchange, "a.#")
    channel.queue_bind(queue, exchange, "#.b")
    channel.queue_bind(queue, exchange, "a.#")
    publish(exchange, "a.b")
    assert depth(channel, queue) == 1


def test_binding_arguments_are_part_of_a_bindings_identity(channel, publish):
    exchange = own_exchange(channel, "direct")
    queue = bound(channel, exchange, "k", note="one")
    channel.queue_bind(queue, exchange, "k", {"note": "two"})
    channel.queue_unbind(queue, exchange, "k", {"note": "one"})
    publish(exchange, "k", "still bound")
    assert bodies(take_all(channel, queue)) == ["still bound"]


def plugin_exchange(channel, kind, **arguments):
    """An exchange of a type that the Erlang broker has as a plugin; skips where that is off."""
    import pika
    name = broker.unique("exchange")
    try:
        channel.exchange_declare(name, kind, auto_delete=True, arguments=arguments)
    except pika.exceptions.AMQPError:
        if broker.runs_on_erlang():
            pytest.skip(f"the plugin for {kind} is not enabled")
        raise
    return name


def test_a_consistent_hash_spreads_keys_and_keeps_them_in_place(channel, publish):
    exchange = plugin_exchange(channel, "x-consistent-hash")
    queues = [bound(channel, exchange, "1") for _ in range(3)]
    for _ in range(2):
        for number in range(300):
            publish(exchange, f"key-{number}", str(number))
    shares = [bodies(take_all(channel, queue)) for queue in queues]
    assert sum(map(len, shares)) == 600
    assert all(len(share) > 60 for share in shares)
    for one in range(3):
        for other in range(one):
            assert not set(shares[one]) & set(shares[other])


def test_a_delayed_message_comes_after_its_delay(channel, publish):
    exchange = plugin_exchange(channel, "x-delayed-message", **{"x-delayed-type": "direct"})
    queue = bound(channel, exchange, "k")
    publish(exchange, "k", "late", headers={"x-delay": 600})
    publish(exchange, "k", "soon", headers={"x-delay": 100})
    publish(exchange, "k", "now")
    assert bodies([arrived(channel, queue) for _ in range(3)]) == ["now", "soon", "late"]
