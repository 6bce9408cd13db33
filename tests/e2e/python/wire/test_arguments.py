"""Queue arguments in every integer type of the protocol, which clients cannot all produce."""

import struct

import pytest
from pika import spec

import broker
from wire_client import Wire, raw_frame

INTEGERS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q"}


@pytest.fixture
def wire():
    """A connection with channel 1 open."""
    client = Wire()
    client.open()
    client.open_channel()
    yield client
    client.close()


def integer(letter, value):
    """An integer as a field value of this type."""
    return letter.encode() + struct.pack(INTEGERS[letter], value)


def declare(wire, name, **arguments):
    """Sends queue.declare of an exclusive queue with encoded x-arguments."""
    table = b""
    for key, value in arguments.items():
        text = b"x-" + key.replace("_", "-").encode()
        table += bytes([len(text)]) + text + value
    exclusive = 1 << 2
    wire.write(raw_frame(1, 1, struct.pack(">HHH", 50, 10, 0) + bytes([len(name)]) + name.encode()
                         + bytes([exclusive]) + struct.pack(">L", len(table)) + table))


@pytest.mark.parametrize("letter", INTEGERS)
@pytest.mark.parametrize("argument", ["expires", "message_ttl", "max_length", "max_length_bytes", "max_priority"])
def test_every_integer_type_is_accepted(wire, letter, argument):
    declare(wire, broker.unique(), **{argument: integer(letter, 100)})
    wire.expect(spec.Queue.DeclareOk)


@pytest.mark.parametrize("letter", INTEGERS)
def test_equal_numbers_of_different_types_are_equivalent(wire, letter):
    name = broker.unique()
    declare(wire, name, message_ttl=integer("I", 120))
    wire.expect(spec.Queue.DeclareOk)
    declare(wire, name, message_ttl=integer(letter, 120))
    wire.expect(spec.Queue.DeclareOk)


@pytest.mark.parametrize("value", [
    b"S" + struct.pack(">L", 3) + b"120", b"d" + struct.pack(">d", 120.0), b"f" + struct.pack(">f", 120.0),
    b"D" + bytes([1]) + struct.pack(">i", 1200), b"V", b"T" + struct.pack(">Q", 120), b"F" + bytes(4), b"A" + bytes(4), b"t\x01",
], ids=["text", "double", "float", "decimal", "void", "timestamp", "table", "array", "boolean"])
@pytest.mark.parametrize("argument", ["expires", "message_ttl", "max_length", "max_priority"])
def test_what_is_no_integer_is_refused(wire, argument, value):
    declare(wire, broker.unique(), **{argument: value})
    wire.expect_channel_close(406, spec.Queue.Declare)


@pytest.mark.parametrize("letter", ["b", "s", "I", "l"])
@pytest.mark.parametrize("argument", ["expires", "message_ttl", "max_length", "max_priority"])
def test_a_negative_number_is_refused(wire, letter, argument):
    declare(wire, broker.unique(), **{argument: integer(letter, -1)})
    wire.expect_channel_close(406, spec.Queue.Declare)


@pytest.mark.parametrize("letter", INTEGERS)
def test_a_lease_of_nothing_is_refused(wire, letter):
    declare(wire, broker.unique(), expires=integer(letter, 0))
    wire.expect_channel_close(406, spec.Queue.Declare)
