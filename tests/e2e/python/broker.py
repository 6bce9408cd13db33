"""The broker under test: its address, what it says of itself, and names nobody else uses."""

import functools
import os
import socket
import threading
import time
import uuid

import pika
import pytest

URI = os.environ.get("LEPUS_URI", "amqp://guest:guest@127.0.0.1:5672/")
PATIENCE = 60.0
"""Seconds after which something that should have happened counts as missing."""


names = []
"""Every name given out in this run. Exchanges that were never bound outlive their test and are removed at the end."""


def parameters(**changes):
    """Connection parameters of the broker under test, with some of them changed."""
    result = pika.URLParameters(URI)
    result.blocked_connection_timeout = 60
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def address():
    """Host and port of the broker."""
    target = parameters()
    return target.host, target.port


def user():
    """The user name the suites log in with."""
    return parameters().credentials.username


def password():
    """That user's password."""
    return parameters().credentials.password


def unique(kind="queue"):
    """A name that no other test, run or suite uses."""
    name = f"e2e.{kind}.{uuid.uuid4().hex}"
    names.append(name)
    return name


@functools.lru_cache(maxsize=None)
def server_properties():
    """What connection.start says of the broker."""
    connection = pika.BlockingConnection(parameters())
    try:
        return dict(connection._impl.server_properties)
    finally:
        connection.close()


def version():
    """The broker's version as a tuple of three integers."""
    return tuple(int(part) for part in server_properties()["version"].split("-")[0].split("+")[0].split("."))


def needs(major, minor, reason):
    """Skips the calling test on brokers that behave like an older version."""
    if version() < (major, minor, 0):
        pytest.skip(f"behaviour since {major}.{minor}, broker is {server_properties()['version']}: {reason}")


def runs_on_erlang():
    """Whether the broker is the Erlang one, where some features are plugins that may be off."""
    return server_properties().get("platform", "").startswith("Erlang")


def until(question, seconds=PATIENCE, pause=time.sleep):
    """Asks until the answer is true and gives it back; fails once patience is over."""
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"still not true after {seconds} s"
        pause(0.02)


class Proxy:
    """A TCP relay in front of the broker whose connections can be cut like a bad network does."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(address())
            self.accepted += 1
            self.sockets += [client, upstream]
            for source, target in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._relay, args=(source, target), daemon=True).start()

    @staticmethod
    def _relay(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends every connection that runs through the relay, without a word of AMQP."""
        victims, self.sockets = self.sockets, []
        for end in victims:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self):
        """Cuts everything and stops listening."""
        self.listener.close()
        self.cut()
