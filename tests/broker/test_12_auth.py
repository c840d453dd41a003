"""AUTH and enhanced authentication (sections 3.15 and 4.12), with the broker of `authenticating.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from . import build
from .build import auth, connect, disconnect, publish, subscribe
from .conftest import OwnBroker
from .marks import both_versions, clause, clause311
from .peer import Peer, Target, connected

CONTINUE, AGAIN = 0x18, 0x19


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker that knows the method "words"."""
    broker = OwnBroker(tmp_path_factory.mktemp("auth"), program=[sys.executable, "-m", "tests.broker.authenticating"])
    yield broker.target
    broker.stop()


def knocking(door: Target, client_id: str, data: bytes, **arguments: int) -> Peer:
    """A client that has sent its CONNECT with these words."""
    peer = Peer.connect(door)
    peer.send(connect(client_id, properties=build.props(auth_method="words", auth_data=data, **arguments)))
    return peer


def expect_welcome(peer: Peer) -> None:
    first, body = peer.packet()
    assert (first, body[:2]) == (build.CONNACK, b"\x00\x00")
    told = build.read_props(body, 2)[0]
    assert told["auth_method"] == ["words"] and told["auth_data"] == [b"welcome"]


def admitted(door: Target, client_id: str) -> Peer:
    """A client that gave the password."""
    peer = knocking(door, client_id, b"password")
    expect_welcome(peer)
    return peer


def said(data: bytes, reason: int = CONTINUE, method: str = "words") -> bytes:
    """An AUTH with these words."""
    return auth(reason, auth_method=method, auth_data=data)


# --- without a method ---


@clause("MQTT-3.1.3-8", "MQTT-3.1.4-2", "MQTT-3.2.2-7")
@clause311("MQTT-3.1.3-9", "MQTT-3.2.2-5")
@both_versions
def test_client_id_refused(door: Target, version: int) -> None:
    """A client id that a guard does not accept is refused with 0x85, in 3.1.1 with return code 2."""
    peer = Peer.connect(door, version=version)
    peer.send(connect("nobody", version=version))
    peer.expect_refused(0x85)


@clause("MQTT-4.12.0-1", "MQTT-3.2.2-7")
def test_unknown_method(target: Target, name: str) -> None:
    """An authentication method that the server does not know is refused."""
    peer = Peer.connect(target)
    peer.send(connect(name, auth_method="no such method", auth_data=b"data"))
    peer.expect_refused({0x8C} if target.ours else {0x8C, 0x87})


@clause("MQTT-4.12.0-7", "MQTT-4.12.0-6", "MQTT-4.13.1-1")
@pytest.mark.parametrize("packet", [said(b"", AGAIN), said(b""), auth(0), b"\xf0\x00"])
def test_auth_out_of_the_blue(target: Target, name: str, packet: bytes) -> None:
    """A client that gave no method with its CONNECT may not send AUTH."""
    peer = connected(target, name)
    peer.send(packet)
    peer.expect_closed(0x82)


@clause("MQTT-3.15.2-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize("reason", [0x01, 0x17, 0x1A, 0x80, 0xFF])
def test_unknown_reason(target: Target, name: str, reason: int) -> None:
    """AUTH knows three reason codes."""
    peer = connected(target, name)
    peer.send(said(b"", reason))
    peer.expect_closed({0x81, 0x82})


@clause("MQTT-4.12.0-6")
def test_plain_client(door: Target, name: str) -> None:
    """A client without a method hears nothing of authentication, where others use it."""
    peer = connected(door, name)
    assert not peer.properties.keys() & {"auth_method", "auth_data"}
    peer.expect_nothing()
    peer.send(said(b"password", AGAIN))
    peer.expect_closed(0x82)


# --- before CONNACK ---


@clause("MQTT-4.12.0-5", "MQTT-3.2.0-1")
def test_accepted_at_once(door: Target, name: str) -> None:
    """An exchange of no steps: CONNACK names the method and carries the server's last word."""
    admitted(door, name).expect_nothing()


@clause("MQTT-4.12.0-2", "MQTT-4.12.0-3", "MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-3.15.2-2", "MQTT-3.15.2-3")
def test_question_and_answer(door: Target, name: str) -> None:
    """The server asks with AUTH 0x18 and the same method, before any CONNACK, as often as it needs."""
    peer = knocking(door, name, b"hello", maximum_packet_size=100)
    for _ in range(3):
        peer.expect(b"\xf0\x15\x18\x13\x15\x00\x05words\x16\x00\x08question")
        peer.send(said(b"hello"))
    peer.expect(said(b"question"))
    peer.send(said(b"answer"))
    expect_welcome(peer)


@clause("MQTT-4.12.0-5")
def test_welcome_after_questions(door: Target, name: str) -> None:
    """After the exchange CONNACK names the method too, and the client is served."""
    peer = knocking(door, name, b"hello")
    peer.expect(said(b"question"))
    peer.send(said(b"answer"))
    expect_welcome(peer)
    peer.subscribe(name)
    peer.send(publish(name, b"inside"))
    peer.expect(publish(name, b"inside"))


@clause("MQTT-4.12.0-4", "MQTT-3.1.4-2", "MQTT-3.14.0-1")
@pytest.mark.parametrize("first_words", [b"hello", b"wrong"])
def test_wrong_words(door: Target, name: str, first_words: bytes) -> None:
    """The server may end the exchange at any step with a CONNACK that refuses."""
    peer = knocking(door, name, first_words)
    if first_words == b"hello":
        peer.expect(said(b"question"))
        peer.send(said(b"wrong"))
    peer.expect_refused(0x87)


@clause("MQTT-4.12.0-1")
def test_other_method(door: Target, name: str) -> None:
    """A method that no guard knows is refused also where another is known."""
    peer = Peer.connect(door)
    peer.send(connect(name, auth_method="WORDS", auth_data=b"password"))
    peer.expect_refused(0x8C)


@clause("MQTT-4.12.0-5")
def test_method_changes(door: Target, name: str) -> None:
    """The method stays the same through the exchange."""
    for answer in (said(b"answer", method="deeds"), auth(CONTINUE), auth(CONTINUE, auth_data=b"answer")):
        peer = knocking(door, name, b"hello")
        peer.expect(said(b"question"))
        peer.send(answer)
        peer.expect_refused(0x82)


@clause("MQTT-4.12.0-3", "MQTT-3.15.2-1")
@pytest.mark.parametrize("reason", [0x00, AGAIN])
def test_reason_of_the_answer(door: Target, name: str, reason: int) -> None:
    """The client goes on with 0x18; success is the server's to say, and there is nothing yet to renew."""
    peer = knocking(door, name, b"hello")
    peer.expect(said(b"question"))
    peer.send(said(b"answer", reason))
    peer.expect_refused(0x82)


@clause("MQTT-3.1.2-30", "MQTT-3.1.4-6")
@pytest.mark.parametrize("kind", ["PUBLISH", "SUBSCRIBE", "PINGREQ", "CONNECT"])
def test_impatience(door: Target, name: str, kind: str) -> None:
    """Until the CONNACK the client may send nothing but AUTH and DISCONNECT."""
    watcher = connected(door, f"{name}w")
    watcher.subscribe(name)
    peer = knocking(door, name, b"hello")
    peer.expect(said(b"question"))
    packet = {
        "PUBLISH": publish(name, b"x"),
        "SUBSCRIBE": subscribe(name),
        "PINGREQ": build.PINGREQ,
        "CONNECT": connect(name, auth_method="words", auth_data=b"password"),
    }[kind]
    peer.send(packet)
    peer.expect_refused(0x82)
    watcher.expect_nothing()


@clause("MQTT-3.1.2-30", "MQTT-3.1.2-7")
def test_client_gives_up(door: Target, name: str) -> None:
    """A client may leave the exchange with a DISCONNECT, and was never there."""
    watcher = connected(door, f"{name}w")
    watcher.subscribe(name)
    peer = Peer.connect(door)
    peer.send(connect(name, auth_method="words", auth_data=b"hello", will=build.will(name, b"never")))
    peer.expect(said(b"question"))
    peer.send(disconnect(0x04))
    peer.expect_eof()
    watcher.expect_nothing()


@clause("MQTT-3.1.4-3", "MQTT-3.1.4-2")
def test_nobody_is_thrown_out_by_a_stranger(door: Target, name: str) -> None:
    """A client id is taken over when its new owner has been authenticated, not before."""
    owner = admitted(door, name)
    stranger = knocking(door, name, b"hello")
    stranger.expect(said(b"question"))
    owner.expect_nothing()
    stranger.send(said(b"wrong"))
    stranger.expect_refused(0x87)
    owner.expect_nothing()
    admitted(door, name)
    owner.expect_closed(0x8E)


# --- again ---


@clause("MQTT-4.12.1-1", "MQTT-3.15.2-1", "MQTT-4.12.0-5")
def test_once_more(door: Target, name: str) -> None:
    """A client may authenticate again with AUTH 0x19; the exchange ends with the server's AUTH 0x00."""
    peer = admitted(door, name)
    peer.send(said(b"password", AGAIN))
    peer.expect(said(b"welcome back", 0x00))
    peer.expect_nothing()


@clause("MQTT-4.12.1-1", "MQTT-4.12.0-2")
def test_life_goes_on_meanwhile(door: Target, name: str) -> None:
    """Other packets flow while a client authenticates again."""
    peer = admitted(door, name)
    peer.subscribe(name)
    peer.send(said(b"hello", AGAIN))
    peer.expect(said(b"question"))
    peer.send(publish(name, b"meanwhile"))
    peer.expect(publish(name, b"meanwhile"))
    peer.send(said(b"answer"))
    peer.expect(said(b"welcome back", 0x00))


@clause("MQTT-4.12.1-2", "MQTT-3.14.4-2")
@pytest.mark.parametrize("first_words", [b"hello", b"wrong"])
def test_once_too_often(door: Target, name: str, first_words: bytes) -> None:
    """When that fails the connection ends."""
    peer = admitted(door, name)
    peer.send(said(first_words, AGAIN))
    if first_words == b"hello":
        peer.expect(said(b"question"))
        peer.send(said(b"wrong"))
    peer.expect_closed(0x87)


@clause("MQTT-4.12.1-1", "MQTT-4.12.1-2")
def test_once_more_by_another_method(door: Target, name: str) -> None:
    """The method stays that of the CONNECT."""
    for packet in (said(b"password", AGAIN, method="deeds"), auth(AGAIN)):
        peer = admitted(door, name)
        peer.send(packet)
        peer.expect_closed(0x82)


@clause("MQTT-4.12.1-1", "MQTT-3.15.2-1")
@pytest.mark.parametrize("reason", [0x00, CONTINUE])
def test_answer_without_a_question(door: Target, name: str, reason: int) -> None:
    """Outside an exchange only 0x19 has a meaning."""
    peer = admitted(door, name)
    peer.send(said(b"password", reason))
    peer.expect_closed(0x82)
