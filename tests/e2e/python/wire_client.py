"""A client that says exactly what it is told, right or wrong: frames over a plain socket, encoded by pika's codec."""

import socket
import struct

import pika.frame
from pika import spec

import broker

HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


def raw_frame(kind, channel, payload, end=b"\xce"):
    """The bytes of one frame, also of one that no codec would make."""
    return struct.pack(">BHL", kind, channel, len(payload)) + payload + end


def method_payload(method):
    """The payload of a method frame."""
    return struct.pack(">L", method.INDEX) + b"".join(method.encode())


def header_payload(body_size, class_id=60, weight=0, properties=None):
    """The payload of a content header frame."""
    encoded = b"".join((properties or spec.BasicProperties()).encode())
    return struct.pack(">HHQ", class_id, weight, body_size) + encoded


class Wire:
    """One socket to the broker, with the bytes received so far."""

    def __init__(self):
        self.socket = socket.create_connection(broker.address(), timeout=broker.PATIENCE)
        self.received = b""

    def close(self):
        """Drops the socket without a word."""
        self.socket.close()

    def write(self, data):
        """Sends bytes as they are; a broker that has already closed is not an error here."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def send(self, channel, *methods):
        """Sends methods in one write."""
        self.write(b"".join(raw_frame(1, channel, method_payload(method)) for method in methods))

    def publish(self, channel, publish, body, properties=None, split=100_000):
        """Sends a publish with its content, the body cut into frames of `split` bytes."""
        parts = [raw_frame(1, channel, method_payload(publish)),
                 raw_frame(2, channel, header_payload(len(body), properties=properties))]
        parts += [raw_frame(3, channel, body[at:at + split]) for at in range(0, len(body), split)]
        self.write(b"".join(parts))

    def read_bytes(self, count):
        """Exactly that many bytes, or what came before the end of the connection."""
        while len(self.received) < count:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                break
            self.received += data
        result, self.received = self.received[:count], self.received[count:]
        return result

    def read_raw(self):
        """Kind, channel and payload of the next frame, or None at the end of the connection."""
        head = self.read_bytes(7)
        if len(head) < 7:
            return None
        kind, channel, size = struct.unpack(">BHL", head)
        payload = self.read_bytes(size + 1)
        assert payload[-1:] == b"\xce"
        return kind, channel, payload[:-1]

    def read(self):
        """The next frame other than a heartbeat as (channel, decoded thing), or None at the end."""
        while True:
            raw = self.read_raw()
            if raw is None:
                return None
            kind, channel, payload = raw
            if kind == 8:
                continue
            _, frame = pika.frame.decode_frame(raw_frame(kind, channel, payload))
            if kind == 1:
                return channel, frame.method
            return channel, frame

    def expect(self, kind, channel=None):
        """The next frame, which must be this method."""
        got = self.read()
        assert got is not None, f"connection ended, expected {kind.NAME}"
        assert isinstance(got[1], kind), f"expected {kind.NAME}, got {got[1]}"
        if channel is not None:
            assert got[0] == channel
        return got[1]

    def expect_content(self):
        """The content header and the whole body that follow a deliver, return or get-ok: (header, body, frame sizes)."""
        _, header = self.read()
        body, sizes = b"", []
        while len(body) < header.body_size:
            kind, _, payload = self.read_raw()
            assert kind == 3
            sizes.append(len(payload))
            body += payload
        return header, body, sizes

    def expect_end(self):
        """Ends this side, as a client does after close-ok; nothing but the end of the other may follow."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        got = self.read()
        assert got is None, f"expected the end of the connection, got {got}"

    def start(self):
        """Sends the protocol header and takes connection.start."""
        self.write(HEADER)
        return self.expect(spec.Connection.Start, 0)

    def login(self, user=None, password=None, capabilities=None, mechanism="PLAIN", response=None, locale="en_US"):
        """Answers connection.start."""
        if response is None:
            response = f"\0{user or broker.user()}\0{password or broker.password()}"
        properties = {"capabilities": CAPABILITIES if capabilities is None else capabilities}
        self.send(0, spec.Connection.StartOk(properties, mechanism, response, locale))

    def open(self, frame_max=None, channel_max=None, heartbeat=0, vhost=None):
        """The whole handshake; gives back the connection.tune that the broker sent."""
        self.start()
        self.login()
        tune = self.expect(spec.Connection.Tune)
        self.tune_ok(tune, frame_max, channel_max, heartbeat)
        self.send(0, spec.Connection.Open(broker.parameters().virtual_host if vhost is None else vhost))
        self.expect(spec.Connection.OpenOk)
        return tune

    def tune_ok(self, tune, frame_max=None, channel_max=None, heartbeat=0):
        """Answers connection.tune with the broker's own figures unless told otherwise."""
        self.send(0, spec.Connection.TuneOk(
            tune.channel_max if channel_max is None else channel_max,
            tune.frame_max if frame_max is None else frame_max,
            heartbeat))

    def open_channel(self, number=1):
        """Opens a channel."""
        self.send(number, spec.Channel.Open())
        self.expect(spec.Channel.OpenOk, number)

    def expect_channel_close(self, code, method=None, channel=1, words=()):
        """The broker must close the channel with this code and name the offending method; the close is answered."""
        close = self.expect(spec.Channel.Close, channel)
        check_close(close, code, method, words)
        self.send(channel, spec.Channel.CloseOk())

    def expect_connection_close(self, code, method=None, words=()):
        """The broker must close the connection with this code; the close is answered and the socket must end."""
        while (got := self.read()) is not None and not isinstance(got[1], spec.Connection.Close):
            assert not isinstance(got[1], spec.Channel.Close), f"only the channel was closed: {got[1]}"
        assert got is not None, "the connection ended without connection.close"
        check_close(got[1], code, method, words)
        self.send(0, spec.Connection.CloseOk())
        self.expect_end()

    def expect_refusal(self, code, method=None, words=()):
        """Like `expect_connection_close`; the Erlang broker ends the socket of a failed handshake without a word."""
        if broker.runs_on_erlang():
            got = self.read()
            assert got is None or isinstance(got[1], spec.Connection.Close)
        else:
            self.expect_connection_close(code, method, words)


def check_close(close, code, method, words):
    """Compares code, class and method ids and the wording of a close."""
    text = close.reply_text
    codes = code if isinstance(code, tuple) else (code,)
    assert close.reply_code in codes, f"{close.reply_code} {text}"
    if method is not None:
        expected = (method.INDEX >> 16, method.INDEX & 0xFFFF)
        assert (close.class_id, close.method_id) == expected, text
    for word in words:
        assert word in text, text
