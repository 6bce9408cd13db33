"""Frames: how contents are cut and joined, and what the broker says to frames that make no sense."""

import struct

import pika.frame
import pytest
from pika import spec

import broker
from wire_client import Wire, header_payload, method_payload, raw_frame


@pytest.fixture
def wire():
    """A connection with channel 1 open."""
    client = Wire()
    client.open()
    client.open_channel()
    yield client
    client.close()


def declare(wire, channel=1):
    """A fresh exclusive queue."""
    wire.send(channel, spec.Queue.Declare(exclusive=True))
    return wire.expect(spec.Queue.DeclareOk).queue


PUBLISH = raw_frame(1, 1, method_payload(spec.Basic.Publish(exchange="", routing_key="nowhere")))
HEARTBEAT_ON_1 = raw_frame(8, 1, b"")


@pytest.mark.parametrize("data, code", [
    pytest.param(raw_frame(1, 0, method_payload(spec.Basic.Publish(routing_key="x"))), (503, 504, 505), id="method on channel 0"),
    pytest.param(raw_frame(2, 1, header_payload(1)), 505, id="header without method"),
    pytest.param(raw_frame(3, 1, b"x"), 505, id="body without header"),
    pytest.param(PUBLISH + raw_frame(3, 1, b"x"), 505, id="body where a header was due"),
    pytest.param(PUBLISH + raw_frame(1, 1, method_payload(spec.Basic.Qos())), 505, id="method where a header was due"),
    pytest.param(PUBLISH + raw_frame(2, 1, header_payload(5)) + raw_frame(1, 1, method_payload(spec.Basic.Qos())), 505,
                 id="method inside a body"),
    pytest.param(PUBLISH + raw_frame(2, 1, header_payload(5)) + raw_frame(2, 1, header_payload(5)), 505,
                 id="header where a body was due"),
    pytest.param(PUBLISH + raw_frame(2, 1, header_payload(5, class_id=50)), 505, id="header of another class"),
    pytest.param(raw_frame(7, 1, b"x"), 501, id="unknown frame type"),
    pytest.param(HEARTBEAT_ON_1, (501, 505), id="heartbeat on channel 1"),
    pytest.param(raw_frame(1, 1, method_payload(spec.Basic.Qos()), end=b"\x00"), 501, id="wrong frame end"),
    pytest.param(raw_frame(1, 1, method_payload(spec.Channel.Open())), 504, id="channel opened twice"),
    pytest.param(raw_frame(1, 2, method_payload(spec.Basic.Qos())), 504, id="method on a channel never opened"),
    pytest.param(raw_frame(1, 1, b"\x00\x3c\x00\x14\x00"), (501, 502), id="method cut short"),
])
def test_a_frame_that_makes_no_sense_ends_the_connection(wire, data, code):
    wire.write(data)
    wire.expect_connection_close(code)


def test_a_method_unknown_to_the_protocol_ends_the_connection(wire):
    wire.write(raw_frame(1, 1, struct.pack(">HH", 60, 199)))
    wire.expect_refusal((503, 540, 541))


def test_a_body_longer_than_its_header_announced_ends_the_connection(wire):
    if broker.runs_on_erlang():
        pytest.skip("the Erlang broker waits for ever")
    wire.write(PUBLISH + raw_frame(2, 1, header_payload(2)) + raw_frame(3, 1, b"three"))
    wire.expect_connection_close((501, 505))


def test_a_frame_above_the_negotiated_size_ends_the_connection():
    wire = Wire()
    wire.open(frame_max=4096)
    wire.open_channel()
    wire.write(PUBLISH + raw_frame(2, 1, header_payload(5000)) + raw_frame(3, 1, bytes(5000)))
    wire.expect_connection_close(501)


def test_a_channel_above_the_negotiated_maximum_is_not_allowed():
    wire = Wire()
    wire.open(channel_max=7)
    for number in range(1, 8):
        wire.open_channel(number)
    wire.send(8, spec.Channel.Open())
    wire.expect_connection_close((504, 530))


@pytest.mark.parametrize("frame_max", [4096, 70_000, 131_072])
def test_bodies_are_cut_to_the_negotiated_size(frame_max):
    wire = Wire()
    wire.open(frame_max=frame_max)
    wire.open_channel()
    queue = declare(wire)
    body = bytes(range(256)) * 1200
    wire.publish(1, spec.Basic.Publish(routing_key=queue), body, split=frame_max - 8)
    wire.send(1, spec.Basic.Get(queue=queue, no_ack=True))
    while isinstance((got := wire.read())[1], spec.Basic.GetEmpty):
        wire.send(1, spec.Basic.Get(queue=queue, no_ack=True))
    assert isinstance(got[1], spec.Basic.GetOk)
    _, received, sizes = wire.expect_content()
    assert received == body
    assert max(sizes) == frame_max - 8
    assert sizes[:-1] == [frame_max - 8] * (len(sizes) - 1)
    wire.close()


@pytest.mark.parametrize("split", [1, 7, 4000])
def test_any_cut_of_a_body_is_joined_again(wire, split):
    queue = declare(wire)
    body = bytes(range(256)) * 20
    wire.publish(1, spec.Basic.Publish(routing_key=queue), body, split=split)
    wire.send(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    wire.expect(spec.Basic.Deliver)
    assert wire.expect_content()[1] == body


def test_empty_body_frames_between_full_ones_do_no_harm(wire):
    queue = declare(wire)
    wire.write(raw_frame(1, 1, method_payload(spec.Basic.Publish(routing_key=queue)))
               + raw_frame(2, 1, header_payload(6)) + raw_frame(3, 1, b"abc") + raw_frame(3, 1, b"")
               + raw_frame(3, 1, b"def"))
    wire.send(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    wire.expect(spec.Basic.Deliver)
    assert wire.expect_content()[1] == b"abcdef"


def test_an_empty_message_is_a_header_without_body_frames(wire):
    queue = declare(wire)
    wire.publish(1, spec.Basic.Publish(routing_key=queue), b"")
    wire.send(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    wire.expect(spec.Basic.Deliver)
    header, body, sizes = wire.expect_content()
    assert (header.body_size, body, sizes) == (0, b"", [])
    wire.send(1, spec.Basic.Qos())
    wire.expect(spec.Basic.QosOk)


def field(letter, data):
    """One entry of a table, named after its type."""
    return b"\x02v" + letter + letter + data


def sized(data):
    """Data behind its length in four bytes."""
    return struct.pack(">L", len(data)) + data


FIELDS = (
    field(b"t", b"\x01") + field(b"b", b"\xff") + field(b"B", b"\xff") + field(b"s", b"\xff\xfe")
    + field(b"u", b"\xff\xfe") + field(b"I", b"\x80\x00\x00\x01") + field(b"i", b"\xff\x00\x00\x01")
    + field(b"l", b"\x80" + bytes(7)) + field(b"f", struct.pack(">f", 1.5)) + field(b"d", struct.pack(">d", -2.25))
    + field(b"D", b"\x02\x00\x00\x01\x3a") + field(b"S", sized(b"text")) + field(b"x", sized(b"\x00\xff"))
    + field(b"T", bytes(4) + b"\x65\x00\x00\x00") + field(b"V", b"")
    + field(b"A", sized(b"I\x00\x00\x00\x05V" + b"S" + sized(b"in an array")))
    + field(b"F", sized(field(b"I", b"\x00\x00\x00\x07")))
)


def test_headers_of_every_field_type_come_back_byte_for_byte(wire):
    queue = declare(wire)
    header = struct.pack(">HHQH", 60, 0, 1, 1 << 13) + sized(FIELDS)
    wire.write(raw_frame(1, 1, method_payload(spec.Basic.Publish(routing_key=queue)))
               + raw_frame(2, 1, header) + raw_frame(3, 1, b"x"))
    wire.send(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    wire.expect(spec.Basic.Deliver)
    assert wire.read_raw() == (2, 1, header)


def test_a_field_of_an_unknown_type_is_a_syntax_error(wire):
    queue = declare(wire)
    header = struct.pack(">HHQH", 60, 0, 1, 1 << 13) + sized(field(b"?", b"\x00"))
    wire.write(raw_frame(1, 1, method_payload(spec.Basic.Publish(routing_key=queue)))
               + raw_frame(2, 1, header) + raw_frame(3, 1, b"x"))
    wire.expect_refusal((501, 502))


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_line_feeds_are_stripped_from_names(wire, kind):
    name = broker.unique(kind)
    spelled = name[:8] + "\r\n" + name[8:] + "\n"
    if kind == "queue":
        wire.send(1, spec.Queue.Declare(queue=spelled, exclusive=True))
        assert wire.expect(spec.Queue.DeclareOk).queue == name
    else:
        wire.send(1, spec.Exchange.Declare(exchange=spelled, type="direct"))
        wire.expect(spec.Exchange.DeclareOk)
        wire.send(1, spec.Exchange.Delete(exchange=name, if_unused=True))
        wire.expect(spec.Exchange.DeleteOk)
        wire.send(1, spec.Exchange.Declare(exchange=spelled, passive=True))
        wire.expect_channel_close(404)


def test_contents_of_two_channels_may_be_interleaved(wire):
    wire.open_channel(2)
    queue = declare(wire)
    frames = {number: [raw_frame(1, number, method_payload(spec.Basic.Publish(routing_key=queue))),
                       raw_frame(2, number, header_payload(4)),
                       raw_frame(3, number, b"%d" % number * 4)]
              for number in (1, 2)}
    for one, two in zip(frames[1], frames[2]):
        wire.write(one + two)
    wire.send(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    bodies = set()
    for _ in range(2):
        wire.expect(spec.Basic.Deliver)
        bodies.add(wire.expect_content()[1])
    assert bodies == {b"1111", b"2222"}


def test_a_handshake_and_publish_sent_byte_by_byte_still_work():
    wire = Wire()
    wire.open()
    wire.open_channel()
    queue = declare(wire)
    data = (raw_frame(1, 1, method_payload(spec.Basic.Publish(routing_key=queue)))
            + raw_frame(2, 1, header_payload(3)) + raw_frame(3, 1, b"abc")
            + raw_frame(1, 1, method_payload(spec.Basic.Consume(queue=queue, no_ack=True))))
    for at in range(len(data)):
        wire.write(data[at:at + 1])
    wire.expect(spec.Basic.ConsumeOk)
    wire.expect(spec.Basic.Deliver)
    assert wire.expect_content()[1] == b"abc"
    wire.close()


def test_frame_max_zero_is_no_way_around_the_limit():
    wire = Wire()
    with pytest.raises(AssertionError, match="negotiated frame_max = 0 is higher"):
        wire.open(frame_max=0)


def test_ninety_nine_pipelined_passive_declares_are_answered_in_order(wire):
    queues = [declare(wire) for _ in range(3)]
    asked = [queues[at % 3] for at in range(99)]
    wire.send(1, *[spec.Queue.Declare(queue=name, passive=True) for name in asked], spec.Channel.Close(200, "", 0, 0))
    assert [wire.expect(spec.Queue.DeclareOk).queue for _ in asked] == asked
    wire.expect(spec.Channel.CloseOk, 1)


def test_thousands_of_pipelined_channel_cycles_lose_nothing(wire):
    rounds, numbers = 20, range(2, 102)
    for _ in range(rounds):
        for number in numbers:
            wire.send(number, spec.Channel.Open(), spec.Channel.Close(200, "", 0, 0))
        answers = {number: [] for number in numbers}
        for _ in range(2 * len(numbers)):
            number, answer = wire.read()
            answers[number].append(type(answer))
        assert answers == {number: [spec.Channel.OpenOk, spec.Channel.CloseOk] for number in numbers}


def test_every_channel_number_can_be_used_and_used_again():
    wire = Wire()
    wire.open(channel_max=64)
    for _ in range(2):
        for number in range(1, 65):
            wire.open_channel(number)
        for number in range(1, 65):
            wire.send(number, spec.Channel.Close(200, "", 0, 0))
            wire.expect(spec.Channel.CloseOk, number)
    wire.close()


def test_frames_on_a_closing_channel_are_ignored_until_close_ok(wire):
    wire.send(1, spec.Queue.Declare(queue=broker.unique("missing"), passive=True))
    wire.publish(1, spec.Basic.Publish(exchange=broker.unique("missing"), routing_key="x"), b"body")
    wire.send(1, spec.Basic.Qos(), spec.Queue.Declare(exclusive=True))
    wire.expect_channel_close(404, spec.Queue.Declare)
    wire.open_channel(1)
    declare(wire)


def test_a_client_close_that_crosses_the_brokers_is_answered(wire):
    wire.send(1, spec.Queue.Declare(queue=broker.unique("missing"), passive=True), spec.Channel.Close(200, "", 0, 0))
    wire.expect(spec.Channel.Close, 1)
    wire.expect(spec.Channel.CloseOk, 1)
    wire.send(1, spec.Channel.CloseOk())
    wire.open_channel(2)


def test_bytes_behind_the_arguments_of_a_publish_reach_nobody(wire):
    queue = declare(wire)
    wire.send(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    payload = method_payload(spec.Basic.Publish(exchange="", routing_key=queue)) + b"\x00\xab\xab"
    message = raw_frame(1, 1, payload) + raw_frame(2, 1, header_payload(1)) + raw_frame(3, 1, b"x")
    # More than one at once: those behind the first may be taken together.
    for _ in range(3):
        wire.write(20 * message)
        for _ in range(20):
            kind, channel, payload = wire.read_raw()
            _, deliver = pika.frame.decode_frame(raw_frame(kind, channel, payload))
            assert isinstance(deliver.method, spec.Basic.Deliver)
            assert payload == method_payload(deliver.method)
            assert wire.expect_content()[1] == b"x"
