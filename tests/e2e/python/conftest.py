"""Fixtures shared by the Python suites."""

import os
import shlex
import subprocess

import pika
import pytest

import broker
import operators


def pytest_sessionfinish():
    """Deletes exchanges that a test made and nothing was ever bound to; deleting what is not there is fine."""
    if broker.names:
        with pika.BlockingConnection(broker.parameters()) as cleaner:
            channel = cleaner.channel()
            for name in broker.names:
                channel.exchange_delete(name)


@pytest.fixture
def proxy():
    """A relay in front of the broker that can be cut."""
    relay = broker.Proxy()
    yield relay
    relay.close()


@pytest.fixture
def operator():
    """The commands of the broker's operator."""
    return operators.from_environment()


@pytest.fixture
def restart():
    """Restarts the broker with the command in LEPUS_RESTART; it returns once the broker accepts again."""
    command = os.environ.get("LEPUS_RESTART")
    if not command:
        pytest.skip("LEPUS_RESTART names no command that restarts the broker")

    def run():
        subprocess.run(shlex.split(command), check=True, timeout=120)

    return run


@pytest.fixture
def connect():
    """Opens connections with changed parameters and closes them when the test ends."""
    opened = []

    def open_connection(**changes):
        connection = pika.BlockingConnection(broker.parameters(**changes))
        opened.append(connection)
        return connection

    yield open_connection
    for connection in opened:
        if connection.is_open:
            try:
                connection.close()
            except pika.exceptions.AMQPError:
                pass


@pytest.fixture
def connection(connect):
    """One open connection."""
    return connect()


@pytest.fixture
def channel(connection):
    """One open channel."""
    return connection.channel()


@pytest.fixture
def leftovers():
    """Names of durable queues and exchanges to be removed when the test ends, whatever it did."""
    class Leftovers:
        queues, exchanges = [], []

        def queue(self, name=None):
            name = name or broker.unique("queue")
            self.queues.append(name)
            return name

        def exchange(self, name=None):
            name = name or broker.unique("exchange")
            self.exchanges.append(name)
            return name

    kept = Leftovers()
    kept.queues, kept.exchanges = [], []
    yield kept
    if kept.queues or kept.exchanges:
        with pika.BlockingConnection(broker.parameters()) as cleaner:
            channel = cleaner.channel()
            for name in kept.queues:
                channel.queue_delete(name)
            for name in kept.exchanges:
                channel.exchange_delete(name)
