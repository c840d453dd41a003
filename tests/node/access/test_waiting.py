"""Real sockets, each event loop: who is being verified keeps nobody waiting, and may go."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from headwater.node.access import verifier
from headwater.node.access.passwords import PasswordFile
from headwater.node.access.settings import AccessSettings
from headwater.node.broker import Broker
from headwater.node.plane.channel import METERED
from headwater.wire.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish
from headwater.wire.reasons import NOT_AUTHORIZED, SUCCESS
from tests.node.access.arriving import rules_file, users_file
from tests.node.test_broker import Peer, Runner, settings, under_each_loop

PATIENCE = 20.0
PEERS: list[Peer] = []
"""Those that are to be closed before the broker stops."""


@contextlib.asynccontextmanager
async def serving(**given: Any) -> AsyncIterator[Broker]:
    async with Broker(settings(allow_anonymous=True, access=AccessSettings(**given))) as broker:
        try:
            yield broker
            assert broker.server.stats.failures == 0
        finally:
            while PEERS:
                await PEERS.pop().close()


async def peer(broker: Broker, *packets: Any) -> Peer:
    opened = Peer(*await asyncio.open_connection("127.0.0.1", broker.port))
    PEERS.append(opened)
    for packet in packets:
        opened.send(packet)
    return opened


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


@under_each_loop
def test_a_slow_verification_delays_nobody_else(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    begun = threading.Event()

    def slow(encoded: str, password: bytes) -> bool:
        begun.set()
        return release.wait(PATIENCE) and password == b"right"

    monkeypatch.setattr(verifier, "verify", slow)

    async def main() -> None:
        async with serving(password_file=users_file(tmp_path, u="right")) as broker:
            waiting = await peer(
                broker, Connect("w", 5, username="u", password=b"right"), Publish("t", b"x", 1, packet_id=3)
            )
            await until(begun.is_set)
            other = await peer(broker, Connect("o", 5), Pingreq())
            assert isinstance(await other.packet(), Connack)
            assert isinstance(await other.packet(), Pingresp), "while the first one waits"
            assert len(broker.server.deciding) == 1
            release.set()
            answer = await waiting.packet()
            assert isinstance(answer, Connack) and answer.reason == SUCCESS
            acknowledged = await waiting.packet()
            assert isinstance(acknowledged, Puback) and acknowledged.packet_id == 3

    runner(main())


@under_each_loop
def test_a_client_that_goes_while_it_is_verified(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    begun = threading.Event()

    def slow(encoded: str, password: bytes) -> bool:
        begun.set()
        return release.wait(PATIENCE)

    monkeypatch.setattr(verifier, "verify", slow)

    async def main() -> None:
        async with serving(password_file=users_file(tmp_path, u="right")) as broker:
            leaving = await peer(broker, Connect("gone", 5, username="u", password=b"right"))
            await until(begun.is_set)
            raw = leaving.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # by RST
            leaving.writer.close()
            release.set()
            await until(lambda: not broker.server.channels)
            assert "gone" not in broker.server.sessions and len(broker.server.deciding) == 0

    runner(main())


@under_each_loop
def test_a_crowd_that_hangs_up_is_not_verified(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends a password and leaves at once would have it computed for nobody."""
    release = threading.Event()
    passwords: list[bytes] = []

    def slow(encoded: str, password: bytes) -> bool:
        passwords.append(password)
        return release.wait(PATIENCE) and password == b"right"

    monkeypatch.setattr(verifier, "verify", slow)

    async def main() -> None:
        async with serving(password_file=users_file(tmp_path, u="right"), verify_threads=1) as broker:
            first = await peer(broker, Connect("first", 5, username="u", password=b"right"))
            await until(lambda: passwords)
            for _ in range(5):
                await (await peer(broker, Connect("", 5, username="u", password=b"wrong"))).close()
            last = await peer(broker, Connect("last", 5, username="u", password=b"right"))
            await until(lambda: broker.server.access.verifying.under_way == 7)
            release.set()
            for each in (first, last):
                answer = await each.packet()
                assert isinstance(answer, Connack) and answer.reason == SUCCESS
            assert passwords == [b"right", b"right"]

    runner(main())


@under_each_loop
def test_who_is_paused_is_not_read_from_whatever_else_is_waited_for(runner: Runner) -> None:
    async def main() -> None:
        async with serving() as broker:
            client = await peer(broker, Connect("c", 5))
            assert isinstance(await client.packet(), Connack)
            server = broker.server
            (channel,) = server.channels
            server.pause(channel, METERED)
            server.written(channel)  # something else was sent to it
            seen = server.stats.received
            client.send(Pingreq())
            other = await peer(broker, Connect("o", 5), Pingreq())
            assert isinstance(await other.packet(), Connack) and isinstance(await other.packet(), Pingresp)
            assert server.stats.received == seen + 2, "those of the other"
            server.resume(channel, METERED)
            assert isinstance(await client.packet(), Pingresp)

    runner(main())


@under_each_loop
def test_argon2id_from_the_file_to_the_connack(runner: Runner, tmp_path: Path) -> None:
    quick = PasswordHasher(time_cost=1, memory_cost=1024)  # at the lowest priority, beside other tests
    PasswordFile({"u": quick.hash("right")}).save(str(tmp_path / "users"))

    async def main() -> None:
        async with serving(password_file=str(tmp_path / "users")) as broker:
            for user, password, expected in (
                ("u", b"right", SUCCESS),
                ("u", b"wrong", NOT_AUTHORIZED),
                ("nobody", b"right", NOT_AUTHORIZED),
            ):
                client = await peer(broker, Connect("c", 5, username=user, password=password))
                answer = await client.packet()
                assert isinstance(answer, Connack) and answer.reason == expected

    runner(main())


@under_each_loop
def test_rules_and_bans_change_at_run_time(runner: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(acl_file=rules_file(tmp_path, "user u\ntopic write a\n")) as broker:
            client = await peer(broker, Connect("c", 5, username="u"))
            assert isinstance(await client.packet(), Connack)
            for rules, reason in (("user u\ntopic write b\n", NOT_AUTHORIZED), ("user u\ntopic write a\n", 0x10)):
                rules_file(tmp_path, rules)
                broker.reload_access()
                client.send(Publish("a", b"", 1, packet_id=1))
                answer = await client.packet()
                assert isinstance(answer, Puback) and answer.reason == reason
            ban = broker.ban("user", "u", 60, "enough")
            assert broker.bans() == [ban]
            last = await client.packet()
            assert isinstance(last, Disconnect) and last.reason == NOT_AUTHORIZED
            assert broker.lift_ban("user", "u") and broker.bans() == []

    runner(main())


@under_each_loop
def test_who_sends_too_fast_is_slowed_down_and_loses_nothing(runner: Runner) -> None:
    async def main() -> None:
        async with serving(message_rate=200, rate_burst=0.05) as broker:
            client = await peer(broker, Connect("c", 5))
            assert isinstance(await client.packet(), Connack)
            loop = asyncio.get_running_loop()
            begin = loop.time()
            for number in range(1, 61):
                client.send(Publish("t", b"x" * 5000, 1, packet_id=number))
            for number in range(1, 61):
                answer = await client.packet()
                assert isinstance(answer, Puback) and answer.packet_id == number
            client.send(Pingreq())
            assert isinstance(await client.packet(), Pingresp)
            assert loop.time() - begin >= (60 - 10) / 200 - 0.01, "never faster than the rate, of which 10 were free"

    runner(main())
