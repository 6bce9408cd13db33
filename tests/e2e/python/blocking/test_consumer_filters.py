"""Consumers with content filters."""

import json

import pika

from deliveries import bodies, channel_closed, own_queue, take_all


def publish(channel, queue, body, **headers):
    properties = pika.BasicProperties(content_type="application/json", headers=headers)
    channel.basic_publish("", queue, json.dumps(body).encode(), properties)


def collect(channel, queue, count, **arguments):
    """Consumes with a filter until so many messages have come, and leaves."""
    found = []

    def take(channel, method, _properties, body):
        found.append(json.loads(body))
        channel.basic_ack(method.delivery_tag)

    tag = channel.basic_consume(queue, take, arguments=arguments)
    while len(found) < count:
        channel.connection.process_data_events(time_limit=30)
    channel.basic_cancel(tag)
    return found


def test_consumers_take_what_their_filters_match(channel):
    queue = own_queue(channel)
    for price in (1, 120, 3, 150):
        publish(channel, queue, {"price": price}, land="UK" if price % 2 else "FR")
    assert collect(channel, queue, 2, **{"x-filter": "b.price > 100"}) == [{"price": 120}, {"price": 150}]
    selector = {"x-filter-jms-selector": "land = 'UK'"}
    assert collect(channel, queue, 2, **selector) == [{"price": 1}, {"price": 3}]
    assert bodies(take_all(channel, queue)) == []


def test_what_no_filter_matches_stays_for_others(channel):
    queue = own_queue(channel)
    for number in range(5):
        publish(channel, queue, {"number": number})
    assert collect(channel, queue, 1, **{"x-filter": "b.number = 3"}) == [{"number": 3}]
    assert [json.loads(body)["number"] for body in bodies(take_all(channel, queue))] == [0, 1, 2, 4]


def test_a_consumers_filter_that_is_none_says_where(channel):
    queue = own_queue(channel)
    with channel_closed(406, "invalid x-filter at character 10: expected a value after '>'"):
        channel.basic_consume(queue, lambda *_: None, arguments={"x-filter": "b.price >"})


def test_what_no_filter_matches_for_long_becomes_a_dead_letter(channel):
    dead = own_queue(channel)
    queue = own_queue(
        channel, unmatched_after=100, dead_letter_exchange="", dead_letter_routing_key=dead
    )
    letters = []

    def take(channel, method, properties, body):
        letters.append((json.loads(body), properties.headers["x-first-death-reason"]))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(dead, take)
    channel.basic_consume(queue, lambda *_: None, arguments={"x-filter": "b.number = 1"})
    for number in range(3):
        publish(channel, queue, {"number": number})
    while len(letters) < 2:
        channel.connection.process_data_events(time_limit=30)
    assert letters == [({"number": 0}, "unmatched"), ({"number": 2}, "unmatched")]
