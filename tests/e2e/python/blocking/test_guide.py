"""The Python lines of docs/filters.md, run as they stand there."""

import json
import pathlib
import re

import pika
import pytest

import broker
from deliveries import bodies, take_all

GUIDE = pathlib.Path(__file__).parents[4] / "docs" / "filters.md"
BINDS, CONSUMES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
ORDERS = [({"total": total}, country) for total, country in [(60, "UK"), (50, "UK"), (60, "FR"), (99.5, "UK")]]


@pytest.fixture
def names(connect):
    """The guide's names, which have to be free; what has them is gone when the test ends."""
    for kind, name in [("queue", "dear-uk"), ("queue", "orders"), ("exchange", "orders")]:
        channel = connect().channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            getattr(channel, f"{kind}_declare")(name, passive=True)
        assert refused.value.reply_code == 404, f"{kind} {name} is somebody's"
    yield
    for kind, name in [("queue", "dear-uk"), ("queue", "orders"), ("exchange", "orders")]:
        getattr(connect().channel(), f"{kind}_delete")(name)


def publish(channel, exchange, key):
    channel.confirm_delivery()
    for body, country in ORDERS:
        properties = pika.BasicProperties(content_type="application/json", headers={"country": country})
        channel.basic_publish(exchange, key, json.dumps(body).encode(), properties)


def totals(messages):
    return [json.loads(body)["total"] for body in messages]


def test_a_queue_is_bound_with_a_filter(names, channel):
    channel.exchange_declare("orders", "topic")
    channel.queue_declare("dear-uk")
    exec(BINDS, {"channel": channel})
    publish(channel, "orders", "order.new")
    publish(channel, "orders", "offer.new")
    assert totals(bodies(take_all(channel, "dear-uk"))) == [60, 99.5]


def test_a_consumer_has_a_filter(names, channel):
    channel.queue_declare("orders")
    publish(channel, "", "orders")
    seen = []
    exec(CONSUMES, {"channel": channel, "on_order": lambda *delivery: seen.append(delivery[-1])})
    broker.until(lambda: len(seen) == 3, pause=channel.connection.sleep)
    assert totals(seen) == [60, 60, 99.5]
