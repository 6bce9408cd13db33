"""Bindings with content filters."""

import json

import pika
import pytest

from deliveries import bodies, channel_closed, own_exchange, own_queue, take_all


@pytest.fixture
def publish(channel):
    """Publishes a JSON body with headers; whether it reached a queue."""
    confirming = channel.connection.channel()
    confirming.confirm_delivery()

    def run(exchange, key, body, **headers):
        properties = pika.BasicProperties(content_type="application/json", headers=headers)
        try:
            confirming.basic_publish(exchange, key, json.dumps(body).encode(), properties, mandatory=True)
        except pika.exceptions.UnroutableError:
            return False
        return True

    return run


def test_a_queue_gets_what_its_filter_matches(channel, publish):
    exchange = own_exchange(channel, "topic")
    dear, rest = own_queue(channel), own_queue(channel)
    channel.queue_bind(dear, exchange, "order.#", {"x-filter": "b.total > 50 AND land = 'UK'"})
    channel.queue_bind(rest, exchange, "order.#", {"x-filter-jms-selector": "land NOT IN ('UK')"})
    assert publish(exchange, "order.1", {"total": 51}, land="UK")
    assert not publish(exchange, "order.1", {"total": 50}, land="UK")
    assert publish(exchange, "order.1", {"total": 51}, land="FR")
    assert not publish(exchange, "offer.1", {"total": 51}, land="UK")
    assert not publish(exchange, "order.1", {"total": 51})
    assert [json.loads(body) for body in bodies(take_all(channel, dear))] == [{"total": 51}]
    assert [json.loads(body) for body in bodies(take_all(channel, rest))] == [{"total": 51}]


def test_an_exchange_routes_by_filters_alone(channel, publish):
    exchange = own_exchange(channel, "x-filter")
    queue = own_queue(channel)
    # The exchange deletes itself with its last binding.
    channel.queue_bind(own_queue(channel), exchange, "", {"x-filter": "b.nothing = 1"})
    channel.queue_bind(queue, exchange, "", {"x-filter": "ANY(b.items[*].sku) LIKE 'B-%'"})
    assert publish(exchange, "any", {"items": [{"sku": "A-1"}, {"sku": "B-7"}]})
    assert not publish(exchange, "any", {"items": [{"sku": "A-1"}]})
    channel.queue_unbind(queue, exchange, "", {"x-filter": "ANY(b.items[*].sku) LIKE 'B-%'"})
    assert not publish(exchange, "any", {"items": [{"sku": "B-7"}]})


def test_a_filter_that_is_none_says_where(channel):
    queue = own_queue(channel)
    with channel_closed(406, "invalid x-filter at character 10: expected a value after '>'"):
        channel.queue_bind(queue, "amq.fanout", "", {"x-filter": "b.price >"})


def test_an_exchange_of_filters_takes_no_binding_without_one(channel):
    exchange, queue = own_exchange(channel, "x-filter"), own_queue(channel)
    with channel_closed(406, "needs x-filter"):
        channel.queue_bind(queue, exchange, "")
