"""The first bytes of a connection: header, start, tune, open and what may go wrong there."""

import struct

import pytest
from pika import spec

import broker
from wire_client import CAPABILITIES, HEADER, Wire, method_payload, raw_frame


@pytest.fixture
def wire():
    """A socket that has not said anything yet."""
    client = Wire()
    yield client
    client.close()


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x02", b"AMQP\x07\x00\x09\x01", b"XXXXXXXX", b"AMQP\x00\x09\x09\x09"])
def test_a_wrong_protocol_header_is_answered_by_the_right_one(wire, header):
    wire.write(header)
    answer = wire.read_bytes(8)
    assert answer[:4] == b"AMQP" and len(answer) == 8
    assert wire.read_bytes(1) == b""


def test_an_http_request_on_the_amqp_port_is_ended(wire):
    wire.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while wire.read_bytes(64):
        pass


def test_start_offers_the_version_mechanisms_and_locale_that_clients_know(wire):
    start = wire.start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.decode().split(" "))
    assert "en_US" in start.locales.decode().split(" ")


def test_start_names_product_version_and_every_capability(wire):
    properties = wire.start().server_properties
    assert properties["product"] == "RabbitMQ"
    assert len(properties["version"].split("-")[0].split(".")) == 3
    assert {"platform", "information"} <= set(properties)
    wanted = ["publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
              "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
              "direct_reply_to"]
    assert {name: properties["capabilities"].get(name) for name in wanted} == dict.fromkeys(wanted, True)


def test_tune_offers_room_for_channels_and_frames(wire):
    wire.start()
    wire.login()
    tune = wire.expect(spec.Connection.Tune, 0)
    assert tune.channel_max == 2047 and tune.frame_max == 131072 and tune.heartbeat == 60


def test_a_wrong_password_is_refused_with_403_when_the_client_understands_that(wire):
    wire.start()
    wire.login(password="not the password")
    wire.expect_connection_close(403, words=["ACCESS_REFUSED", "Login was refused using authentication mechanism PLAIN"])


def test_a_wrong_password_ends_the_socket_of_a_client_that_does_not(wire):
    wire.start()
    wire.login(password="not the password", capabilities={})
    wire.expect_end()


def test_amqplain_carries_user_and_password_in_a_table(wire):
    wire.start()
    encoded = b""
    for key, value in (("LOGIN", broker.user()), ("PASSWORD", broker.password())):
        encoded += bytes([len(key)]) + key.encode() + b"S" + struct.pack(">L", len(value)) + value.encode()
    wire.login(mechanism="AMQPLAIN", response=encoded.decode())
    wire.expect(spec.Connection.Tune)


def test_a_mechanism_that_was_not_offered_is_refused(wire):
    wire.start()
    wire.login(mechanism="SCRAM-FOO", response="x")
    wire.expect_refusal(503, words=["SCRAM-FOO"])


@pytest.mark.parametrize("locale", ["en_US", "de_DE", "", "x" * 200])
def test_any_locale_is_accepted_or_refused_cleanly(wire, locale):
    wire.start()
    wire.login(locale=locale)
    _, answer = wire.read()
    assert isinstance(answer, (spec.Connection.Tune, spec.Connection.Close))


def test_an_unknown_vhost_is_refused_with_530(wire):
    tune_after_login(wire)
    wire.send(0, spec.Connection.Open("no such vhost"))
    wire.expect_connection_close(530, spec.Connection.Open, words=["NOT_ALLOWED", "no such vhost"])


def tune_after_login(wire, **figures):
    """Goes as far as tune-ok, answered with these figures."""
    wire.start()
    wire.login()
    wire.tune_ok(wire.expect(spec.Connection.Tune), **figures)


@pytest.mark.parametrize("figures", [
    pytest.param({"frame_max": 1024}, id="frame_max under the minimum"),
    pytest.param({"frame_max": 131073}, id="frame_max above the offer"),
    pytest.param({"channel_max": 60_000}, id="channel_max above the offer"),
    pytest.param({"channel_max": 0}, id="no channel_max although the broker gave one"),
])
def test_tune_ok_outside_the_offer_is_refused_with_530(wire, figures):
    tune_after_login(wire, **figures)
    wire.expect_refusal(530, words=["NOT_ALLOWED"])


def test_the_protocols_smallest_frame_max_is_accepted(wire):
    wire.open(frame_max=4096)
    wire.open_channel()


def test_a_frame_too_large_for_the_handshake_is_rejected(wire):
    wire.start()
    properties = {"capabilities": CAPABILITIES, "padding": "x" * 20_000}
    method = spec.Connection.StartOk(properties, "PLAIN", f"\0{broker.user()}\0{broker.password()}", "en_US")
    wire.write(raw_frame(1, 0, method_payload(method)))
    got = wire.read()
    assert got is None or (isinstance(got[1], spec.Connection.Close) and got[1].reply_code == 501)


@pytest.mark.parametrize("steps", range(5))
def test_a_client_may_vanish_at_any_step_of_the_handshake(wire, steps):
    actions = [
        lambda: wire.write(HEADER[:5]),
        wire.start,
        wire.login,
        lambda: wire.expect(spec.Connection.Tune),
        lambda: wire.tune_ok(spec.Connection.Tune(2047, 131072, 60)),
    ]
    for action in actions[1:steps + 1] if steps else actions[:1]:
        action()
    wire.close()
    other = Wire()
    other.open()
    other.close()


def test_a_client_may_close_properly_before_open(wire):
    tune_after_login(wire)
    wire.send(0, spec.Connection.Close(200, "changed my mind", 0, 0))
    got = wire.read()
    assert got is None or isinstance(got[1], (spec.Connection.CloseOk, spec.Connection.Close))


def test_close_is_answered_and_the_socket_ends(wire):
    wire.open()
    wire.open_channel()
    wire.send(0, spec.Connection.Close(200, "bye", 0, 0))
    wire.expect(spec.Connection.CloseOk, 0)
    wire.expect_end()


def test_frames_after_close_are_ignored(wire):
    wire.open()
    wire.open_channel()
    wire.send(0, spec.Connection.Close(200, "bye", 0, 0))
    wire.send(1, spec.Queue.Declare(queue=broker.unique(), exclusive=True))
    wire.expect(spec.Connection.CloseOk, 0)
    wire.expect_end()


def test_a_mute_peer_is_dropped_after_missed_heartbeats(wire):
    wire.open(heartbeat=1)
    wire.socket.settimeout(60)
    kinds = []
    while (raw := wire.read_raw()) is not None:
        kinds.append(raw[0])
    assert 8 in kinds, "the broker sends heartbeats of its own"


def test_update_secret_is_answered_at_once(wire):
    wire.open()
    wire.send(0, spec.Connection.UpdateSecret("a new secret", "rotation"))
    wire.expect(spec.Connection.UpdateSecretOk, 0)
    wire.open_channel()
