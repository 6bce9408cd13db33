"""Market data for thousands of subscribers, each of whom says by a filter what to get.

A publisher sends trades as JSON. Each subscriber has a queue of its own, bound to one exchange of the type `x-filter` with an
expression over the fields of a trade:

    watchers     b.sym = 'S0017' AND b.price > 4100
    portfolios   b.sym IN ('S0003', 'S0017', …) AND b.qty >= 8200
    desks        b.price * b.qty > 90000000

The program works out by itself who wants which trade, and says at the end whether everybody got that and nothing else. The
broker must allow as many filters: `lepus serve --limits-exchange-filters-max 10000`.
"""

import argparse
import collections
import json
import os
import random
import sys
import time
import uuid

import pika

PRICES = 10_000
QUANTITIES = 10_000
BELL = "the market is closed"
"""The last message of every subscriber."""


class Subscriber:
    """Somebody who wants some of the trades."""

    def __init__(self, number, symbols, chance):
        self.number = number
        self.symbols, self.price, self.quantity, self.worth = None, None, None, None
        kind = chance.random()
        if kind < 0.80:
            self.symbols = [chance.randrange(symbols)]
            self.price = chance.randrange(PRICES)
        elif kind < 0.99:
            self.symbols = sorted(chance.sample(range(symbols), min(5, symbols)))
            self.quantity = chance.randrange(QUANTITIES)
        else:
            self.worth = chance.randrange(PRICES * QUANTITIES * 8 // 10, PRICES * QUANTITIES)

    def filter(self):
        """What to get, as the broker is told."""
        if self.worth is not None:
            return f"b.price * b.qty > {self.worth}"
        if self.price is not None:
            return f"b.sym = '{name(self.symbols[0])}' AND b.price > {self.price}"
        names = ", ".join(f"'{name(symbol)}'" for symbol in self.symbols)
        return f"b.sym IN ({names}) AND b.qty >= {self.quantity}"

    def wants(self, trade):
        """The same, as this program knows it."""
        if self.worth is not None:
            return trade["price"] * trade["qty"] > self.worth
        if self.price is not None:
            return trade["price"] > self.price
        return trade["qty"] >= self.quantity


def name(symbol):
    return f"S{symbol:04}"


def expected(subscribers, trades):
    """The ids of the trades that each subscriber should get, in order."""
    by_symbol = collections.defaultdict(list)
    for subscriber in subscribers:
        # Who names no symbol stands under "any".
        names = ["any"] if subscriber.symbols is None else map(name, subscriber.symbols)
        for symbol in names:
            by_symbol[symbol].append(subscriber)
    wanted = [[] for _ in subscribers]
    for trade in trades:
        for subscriber in by_symbol[trade["sym"]] + by_symbol["any"]:
            if subscriber.wants(trade):
                wanted[subscriber.number].append(trade["id"])
    return wanted


def subscribe(channel, exchange, subscriber, got, closed):
    """A queue that goes with the connection, a filter, and a consumer."""
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange, arguments={"x-filter": subscriber.filter()})

    def take(_channel, _deliver, _properties, body):
        message = json.loads(body)
        if message == BELL:
            closed.add(subscriber.number)
        else:
            got[subscriber.number].append(message["id"])

    channel.basic_consume(queue, take, auto_ack=True)
    return queue


def run(options):
    chance = random.Random(options.seed)
    subscribers = [Subscriber(number, options.symbols, chance) for number in range(options.subscribers)]
    trades = [
        {
            "id": number,
            "sym": name(chance.randrange(options.symbols)),
            "price": chance.randrange(PRICES),
            "qty": chance.randrange(QUANTITIES),
            "venue": chance.choice(["XLON", "XNYS", "XETR"]),
        }
        for number in range(options.trades)
    ]
    exchange = f"market-data-{uuid.uuid4()}"
    connection = pika.BlockingConnection(pika.URLParameters(options.uri))
    channel = connection.channel()
    channel.exchange_declare(exchange, "x-filter", auto_delete=True)

    begun = time.monotonic()
    got, closed = [[] for _ in subscribers], set()
    queues = [subscribe(channel, exchange, subscriber, got, closed) for subscriber in subscribers]
    print(f"{len(subscribers)} subscribers have their filters after {time.monotonic() - begun:.1f} s, such as")
    for subscriber in subscribers[:3]:
        print(f"    {subscriber.filter()}")

    begun = time.monotonic()
    publisher = connection.channel()
    publisher.confirm_delivery()
    kind = pika.BasicProperties(content_type="application/json")
    for trade in trades:
        publisher.basic_publish(exchange, "", json.dumps(trade), kind)
    # Straight to each queue, behind all that came for it.
    for queue in queues:
        publisher.basic_publish("", queue, json.dumps(BELL), kind)
    patience = time.monotonic() + options.patience
    while len(closed) < len(subscribers) and time.monotonic() < patience:
        connection.process_data_events(0.1)
    print(f"{len(trades)} trades published, {sum(map(len, got))} deliveries after {time.monotonic() - begun:.1f} s")
    connection.close()

    wrong = 0
    for subscriber, wanted in zip(subscribers, expected(subscribers, trades)):
        if got[subscriber.number] != wanted or subscriber.number not in closed:
            wrong += 1
            if wrong <= 3:
                print(f"`{subscriber.filter()}` got {got[subscriber.number]} instead of {wanted}")
    verdict = "all as their filters say" if wrong == 0 else f"{wrong} of them WRONG"
    print(
        f"market data: {len(subscribers)} subscribers, {len(trades)} trades, "
        f"{sum(map(len, got))} deliveries, {verdict}"
    )
    return 0 if wrong == 0 and any(got) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--uri",
        default=os.environ.get("LEPUS_URI", "amqp://guest:guest@localhost:5672/%2f"),
        help="the broker (default: LEPUS_URI, or guest at this host)",
    )
    parser.add_argument("--subscribers", type=int, default=10_000, help="default 10000")
    parser.add_argument("--symbols", type=int, default=1_000, help="default 1000")
    parser.add_argument("--trades", type=int, default=5_000, help="default 5000")
    parser.add_argument("--seed", type=int, default=1, help="decides filters and trades; default 1")
    parser.add_argument("--patience", type=float, default=60, help="longest wait for deliveries in seconds; default 60")
    try:
        return run(parser.parse_args())
    except pika.exceptions.ChannelClosedByBroker as refusal:
        print(f"the broker refused: {refusal.reply_code} {refusal.reply_text}", file=sys.stderr)
        return 1
    except pika.exceptions.AMQPConnectionError as error:
        print(f"no connection to the broker: {error!r}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
