"""Whom a node dials, and how often: members may tell any address, and a stranger's is any host and port."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.node.links.cluster import Cluster
from headwater.node.links.dialing import refusal
from headwater.node.links.redialing import (
    LONGEST_PAUSE,
    LONGEST_PAUSE_OF_STRANGERS,
    MOST_ADDRESSES,
    MOST_DIALED,
    MOST_OF_ALL_MEMBERS,
    MOST_OF_ONE_MEMBER,
)
from headwater.peering.membership.bounds import MAX_NODES
from headwater.peering.membership.membership import Membership
from headwater.peering.membership.roster import Timing
from tests.node.links.nodes import run, until
from tests.node.links.test_cluster import cluster_of, node, owed, states
from tests.node.transports.serving import HOST, Authority


def hear(cluster: Cluster, liar: Membership, now: float) -> None:
    """What the liar says of itself, as if it came over a link."""
    membership = cluster._gossiping._membership
    answer = membership.receive(liar.greeting(now), now, liar.node)
    assert answer is not None
    delta = liar.receive(answer, now, cluster.node)
    if delta is not None:
        membership.receive(delta, now, liar.node)
    cluster._gossiping._see_changes()


def dialed_by(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that would have been dialed, from now on."""
    found: list[str] = []
    monkeypatch.setattr(cluster._redialing, "_dial", lambda address, attempts: found.append(address))
    return found


def liar_of(name: str, address: str = "127.0.0.1:1") -> Membership:
    return Membership("test", name, 1, address, Random(1), Timing())


def test_addresses_that_a_member_makes_up_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with node("a") as a:
            cluster, now = cluster_of(a), a.server.hot.now
            redialing, liar = cluster._redialing, liar_of("x")
            dialed = dialed_by(cluster, monkeypatch)
            for number in range(2 * MOST_ADDRESSES):
                liar.move(f"127.0.0.1:{number + 1}")
                hear(cluster, liar, now)
                redialing._dial_some(now + number * 60 / MOST_OF_ONE_MEMBER)
            assert len(set(dialed)) > MOST_ADDRESSES
            assert len(redialing._attempts) <= MOST_ADDRESSES + 1
            assert len(redialing._node_at) <= MOST_ADDRESSES + 1

    run(body())


def test_of_one_member_four_addresses_are_tried_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_OF_ONE_MEMBER == 4

    async def body() -> None:
        async with node("a") as a:
            cluster, now = cluster_of(a), a.server.hot.now
            liar, honest = liar_of("x"), liar_of("y", "127.0.0.2:1")
            dialed = dialed_by(cluster, monkeypatch)
            for number in range(100):
                liar.move(f"127.0.0.1:{number + 1}")
                hear(cluster, liar, now)
                cluster._redialing._dial_some(now + number / 2)
            assert set(dialed) == {f"127.0.0.1:{number + 1}" for number in range(4)}
            dialed.clear()
            hear(cluster, honest, now)
            cluster._redialing._dial_some(now + 59)
            assert dialed == ["127.0.0.2:1"]
            cluster._redialing._dial_some(now + 60.001)  # not 60.0: a sum of floats may be less
            assert "127.0.0.1:100" in dialed

    run(body())


def test_of_all_members_256_addresses_are_tried_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_OF_ALL_MEMBERS == 256

    async def body() -> None:
        async with node("a") as a:
            cluster, now = cluster_of(a), a.server.hot.now
            dialed = dialed_by(cluster, monkeypatch)
            for number in range(100):
                liar = liar_of(f"x{number}")
                for other in range(4):
                    liar.move(f"127.0.{number}.{other + 1}:1")
                    hear(cluster, liar, now)
                    cluster._redialing._dial_some(now)
            assert len(set(dialed)) == 256
            cluster._redialing._dial_some(now + 60.001)  # not 60.0: a sum of floats may be less
            assert len(set(dialed)) > 256

    run(body())


def test_who_was_never_linked_is_dialed_more_and_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where the operator says that somebody is, every few seconds."""
    assert (LONGEST_PAUSE, LONGEST_PAUSE_OF_STRANGERS) == (5.0, 30.0)

    async def body() -> None:
        async with node("a", "127.0.0.1:2") as a:
            cluster, now = cluster_of(a), a.server.hot.now
            await until(lambda: cluster._seeking.addresses == ["127.0.0.1:2"])
            hear(cluster, liar_of("x"), now)
            redialing = cluster._redialing
            times: dict[str, list[float]] = {"127.0.0.1:1": [], "127.0.0.1:2": []}
            redialing.again()
            clock = now

            def dial(address: str, attempts: Any) -> None:
                times[address].append(clock)
                redialing._failed(address, attempts, "nobody is there", clock)

            monkeypatch.setattr(redialing, "_dial", dial)
            while clock < now + 600:
                redialing._dial_some(clock)
                clock += 0.1
            for address, longest in (("127.0.0.1:1", 30), ("127.0.0.1:2", 5)):
                pauses = [after - before for before, after in itertools.pairwise(times[address])]
                assert longest < max(pauses) <= 1.5 * longest + 0.2
                assert min(pauses[10:]) >= 0.5 * longest

    run(body())


def test_a_path_that_a_member_tells_is_not_dialed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be any socket of this machine."""

    async def body() -> None:
        path = f"unix:{tmp_path / 'socket'}"
        for settings, expected in (({}, []), ({"unix": str(tmp_path / "a")}, [path])):
            async with node("a", **settings) as a:
                cluster, now = cluster_of(a), a.server.hot.now
                dialed = dialed_by(cluster, monkeypatch)
                hear(cluster, liar_of("x", path), now)
                cluster._redialing._dial_some(now)
                assert dialed == expected

    run(body())


def test_listeners_of_this_node_that_are_not_for_nodes_are_not_dialed() -> None:
    async def body() -> None:
        async with node("a") as a:
            cluster, accepted = cluster_of(a), a.server.stats.sockets_opened
            for host in (HOST, "127.0.0.9", "localhost"):
                address = f"{host}:{a.addresses[0][1]}"
                cluster.join([address])
            await until(lambda: len(cluster._redialing._attempts) >= 2)
            attempts = cluster._redialing._attempts
            await until(lambda: all("not for nodes" in each.reason for each in attempts.values()))
            assert a.server.stats.sockets_opened == accepted

    run(body())


def test_nodes_that_a_member_makes_up_are_bounded() -> None:
    async def body() -> None:
        async with node("a") as a:
            cluster = cluster_of(a)
            redialing, now = cluster._redialing, a.server.hot.now
            for number in range(2000):
                hear(cluster, liar_of(f"n{number}", f"127.0.0.1:{number + 1}"), now)
            with a.server.turn():
                redialing._dial_some(now)
            assert len(states(a)) <= MAX_NODES
            assert len(owed(a)) <= MAX_NODES
            assert len(cluster._history) <= MAX_NODES
            under_way = [each for each in redialing._attempts.values() if each.is_under_way]
            assert len(under_way) <= MOST_DIALED
            assert cluster._links is not None
            assert cluster._links.spooling.members == {}

    run(body())


# ---- why there is no link --------------------------------------------------------------------------------------------


def certified(authority: Authority, name: str, *trusted: Authority, **settings: Any) -> dict[str, Any]:
    """Settings for TLS of this node, who trusts these authorities, or its own."""
    file = authority.folder / f"{name}-trusts.pem"
    file.write_bytes(b"".join(Path(each.file).read_bytes() for each in trusted or (authority,)))
    return {"tls": {**authority.client(name, name), "ca": str(file), **settings}}


def test_who_dials_says_why_its_certificate_was_refused(
    authority: Authority, another_authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in TLS 1.3, in which the handshake is over for it before the other node has looked."""
    caplog.set_level(logging.INFO, "headwater.cluster")
    trusting = certified(another_authority, "b", authority, another_authority)

    async def body() -> None:
        async with node("a", **certified(authority, "a")) as a, node("b", a, **trusting) as b:
            address = cluster_of(a).address
            await until(lambda: "unknown ca" in cluster_of(b)._redialing.why_not(address))
            assert f"no link with {address}: the other node refused TLS: unknown ca (its cluster.tls.ca" in caplog.text
            assert cluster_of(b)._redialing._attempts[address].transport is None

    run(body())


def test_who_dials_says_why_it_does_not_trust_the_other_one(authority: Authority, another_authority: Authority) -> None:
    async def body() -> None:
        async with (
            node("a", **certified(authority, "a", authority, another_authority)) as a,
            node("b", a, **certified(another_authority, "b")) as b,
        ):
            address = cluster_of(a).address
            await until(lambda: cluster_of(b)._redialing.why_not(address) != "")
            said = "this node does not trust the other one's certificate: self-signed certificate in certificate chain"
            assert cluster_of(b)._redialing.why_not(address) == said

    run(body())


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", "the other node refused TLS: unknown ca (its cluster.tls.ca has no authority"),
        ("tlsv13 alert certificate required", "the other node refused TLS: certificate required (this node has shown"),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", "the other node refused TLS: certificate revoked (this node's certificate"),
        ("TLSV1_ALERT_INTERNAL_ERROR", "the other node refused TLS: internal error"),
        ("certificate has expired", "this node does not trust the other one's certificate: certificate has expired"),
        ("WRONG_VERSION_NUMBER", "the other node speaks no TLS there"),
        ("no answer", "no answer"),
    ],
)
def test_alerts_in_words(failure: str, said: str) -> None:
    assert refusal(failure).startswith(said)
