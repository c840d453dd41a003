"""Client identifiers (section 3.1.3.1)."""

from __future__ import annotations

import pytest

from .build import connack, connect, disconnect, publish
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected


@clause("MQTT-3.1.3-5")
@clause311("MQTT-3.1.3-5")
@pytest.mark.parametrize(
    "client_id", ["7", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ0123456"]
)
@both_versions
def test_letters_and_digits(target: Target, version: int, client_id: str) -> None:
    """1 to 23 letters and digits are a client id everywhere."""
    connected(target, client_id, version).expect_nothing()


@clause("MQTT-3.1.3-4")
@clause311("MQTT-3.1.3-4")
@both_versions
def test_any_utf8(target: Target, name: str, version: int) -> None:
    """A client id is a UTF-8 string: letters of all scripts, spaces, slashes and wildcards are nothing special."""
    connected(target, f"{name} é/水/🙂/+/#", version).expect_nothing()


@clause("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
@pytest.mark.parametrize("clean", [True, False])
def test_empty(target: Target, clean: bool) -> None:
    """A client without an id gets one of its own, and is told."""
    first, second = connected(target, "", clean=clean), connected(target, "", clean=clean)
    ids = [peer.properties["assigned_client_id"] for peer in (first, second)]
    assert len(ids[0]) == len(ids[1]) == 1 and ids[0] != ids[1] and all(ids[0]) and all(ids[1])
    assert not first.session_present and not second.session_present
    first.expect_nothing()
    second.expect_nothing()


@clause("MQTT-3.1.3-7", "MQTT-3.1.3-2")
def test_assigned_id_names_the_session(target: Target) -> None:
    """The assigned id is as good as one the client chose: it finds the session again."""
    peer = connected(target, "", session_expiry=100)
    (assigned,) = peer.properties["assigned_client_id"]
    peer.subscribe("a/b")
    peer.close()
    assert isinstance(assigned, str)
    again = connected(target, assigned, clean=False)
    assert again.session_present
    assert "assigned_client_id" not in again.properties


@clause("MQTT-3.2.2-16")
def test_not_assigned_without_need(target: Target, name: str) -> None:
    """A client that brings its id is not given another."""
    assert "assigned_client_id" not in connected(target, name).properties


@clause311("MQTT-3.1.3-6", "MQTT-3.1.3-7")
def test_empty_311(target: Target) -> None:
    """In 3.1.1 clients without an id are served if they ask for a clean session, each for itself."""
    first, second = connected(target, "", V311), connected(target, "", V311)
    first.expect_nothing()
    second.expect_nothing()


@clause311("MQTT-3.1.3-8", "MQTT-3.1.3-9", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
def test_empty_with_session_311(target: Target) -> None:
    """In 3.1.1 a session that is to be kept needs a name: return code 2."""
    peer = Peer.connect(target, version=V311)
    peer.send(connect("", version=V311, clean=False))
    peer.expect(connack(2, version=V311))
    peer.expect_eof()


@clause("MQTT-3.1.3-2")
@clause311("MQTT-3.1.3-2")
@both_versions
def test_ids_are_distinct(target: Target, name: str, version: int) -> None:
    """Ids that differ in case, or by a mark in front, belong to different clients."""
    peers = [connected(target, f"{each}{name}", version) for each in ("x", "X", "\ufeffx", "x ")]
    for peer in peers:
        peer.expect_nothing()


@clause("MQTT-3.1.3-2", "MQTT-3.1.2-5")
@clause311("MQTT-3.1.3-2", "MQTT-3.1.2-4")
def test_id_is_the_same_in_both_versions(target: Target, name: str) -> None:
    """A session belongs to the client id, whichever version the client speaks."""
    old = connected(target, name, V311, clean=False)
    old.subscribe(f"{name}/t")
    old.close()
    new = connected(target, name, V5, clean=False, session_expiry=100)
    assert new.session_present
    new.send(publish(f"{name}/t", b"still subscribed"))
    new.expect(publish(f"{name}/t", b"still subscribed"))
    new.send(disconnect(0, session_expiry=0))
    new.expect_eof()
    assert not connected(target, name, V311, clean=False).session_present
