"""Keep alive, PINGREQ and the time a new connection has (sections 3.1.2.10 and 3.12)."""

from __future__ import annotations

import time
from collections.abc import Callable

from .build import PINGREQ, PINGRESP, connect, publish
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected

Start = Callable[[str], Target]


def expect_cut_off(peer: Peer, target: Target, least: float) -> None:
    """The connection is closed for silence after at least so many seconds; by ours within 1.5 seconds more."""
    started = time.monotonic()
    peer.expect_closed(0x8D, within=10.0)  # some brokers look only every few seconds
    waited = time.monotonic() - started
    assert least < waited < (least + 1.5 if target.ours else 10)


@clause("MQTT-3.12.4-1")
@clause311("MQTT-3.12.4-1")
@both_versions
def test_ping(target: Target, name: str, version: int) -> None:
    """Every PINGREQ is answered by a PINGRESP."""
    peer = connected(target, name, version)
    peer.send(PINGREQ)
    peer.expect(b"\xd0\x00")
    peer.send(PINGREQ * 3)
    peer.expect(PINGRESP * 3)


@clause("MQTT-3.1.2-22", "MQTT-3.2.2-22")
@clause311("MQTT-3.1.2-24")
def test_silence(target: Target, name: str) -> None:
    """A client that is silent for one and a half times its keep alive is cut off, and 5.0 is told 0x8D."""
    old, new = connected(target, f"{name}4", V311, keep_alive=1), connected(target, f"{name}5", V5, keep_alive=1)
    assert "server_keep_alive" not in new.properties
    expect_cut_off(new, target, 1.4)
    old.expect_closed(within=10.0)


@clause("MQTT-3.1.2-22")
@clause311("MQTT-3.1.2-24")
def test_signs_of_life(target: Target, name: str) -> None:
    """Any packet is a sign of life, in both versions, and the time counts from the last."""
    pinging = [connected(target, f"{name}{version}a", version, keep_alive=2) for version in (V311, V5)]
    talking = [connected(target, f"{name}{version}b", version, keep_alive=2) for version in (V311, V5)]
    for pause in (0.7, 2.5):  # the clients' pace: each within 3 seconds, together beyond them
        time.sleep(pause)
        for peer in pinging:
            peer.expect_nothing()
        for peer in talking:
            peer.send(publish(name, b"x", version=peer.version))
    for peer in talking + pinging:
        peer.expect_nothing()


@clause("MQTT-3.1.2-22")
@clause311("MQTT-3.1.2-24")
def test_no_keep_alive(target: Target, name: str) -> None:
    """A keep alive of 0 turns it off: that client outlives one of 1 second."""
    quiet = [connected(target, f"{name}{version}", version, keep_alive=0) for version in (V311, V5)]
    expect_cut_off(connected(target, name, keep_alive=1), target, 1.4)
    for peer in quiet:
        peer.expect_nothing()


@clause("MQTT-3.1.2-22")
def test_receiving_is_no_sign_of_life(target: Target, name: str) -> None:
    """What the broker sends does not count for the client."""
    peer, writer = connected(target, name, keep_alive=1), connected(target, f"{name}p")
    peer.subscribe(name)
    for _ in range(3):
        time.sleep(0.4)  # the publisher's pace
        writer.publish(name, b"x")
        peer.expect(publish(name, b"x"))
    expect_cut_off(peer, target, 0)


@clause("MQTT-3.1.2-21", "MQTT-3.2.2-21", "MQTT-3.1.2-22")
def test_server_keep_alive(broker_with: Start, name: str) -> None:
    """A server with a longest keep alive says so and goes by its own; one within it is the client's."""
    target = broker_with("max_keep_alive = 1")
    assert "server_keep_alive" not in connected(target, f"{name}1", keep_alive=1).properties
    peer, other = connected(target, name, keep_alive=60), connected(target, f"{name}0", keep_alive=0)
    assert peer.properties["server_keep_alive"] == other.properties["server_keep_alive"] == [1]
    expect_cut_off(peer, target, 1.4)
    other.expect_closed(0x8D)


def test_connect_takes_too_long(broker_with: Start, name: str) -> None:
    """A connection that brings no CONNECT in time is closed, with nothing said."""
    target = broker_with("connect_timeout = 1.0")
    started = time.monotonic()
    peers = [Peer.connect(target) for _ in range(3)]
    for peer, sent in zip(peers, (b"", b"\x10", connect("late")[:-1]), strict=True):
        peer.send(sent)
    for peer in peers:
        peer.expect_eof()
    assert time.monotonic() - started > 0.9
    connected(target, name).expect_nothing()
