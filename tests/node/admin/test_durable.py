"""What the admin API has answered is on disk, as it is for clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from headwater.client import Client
from headwater.disk.errors import StorageError
from headwater.message import Message
from headwater.node.admin.app import make_app
from headwater.node.admin.desk import Desk
from headwater.node.admin.local import LocalReach
from headwater.node.admin.token import FixedToken
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.plane.selector import run
from tests.node.admin.api import TOKEN, admin

PATIENCE = 20.0

PUBLISH = ("POST", "/v1/publish", {"json": {"topic": "t", "payload": "x", "qos": 1}})
RETAIN = ("POST", "/v1/publish", {"json": {"topic": "other", "payload": "x", "retain": True}})
DELETE_RETAINED = ("DELETE", "/v1/retained/message", {"params": {"topic": "old"}})
END_SESSION = ("DELETE", "/v1/sessions/away", {})
END_CONNECTED_SESSION = ("DELETE", "/v1/sessions/there", {})
ORDERS = [PUBLISH, RETAIN, DELETE_RETAINED, END_SESSION, END_CONNECTED_SESSION]
NAMES = ["publish", "retain", "delete-retained", "end-session", "end-connected-session"]

Order = tuple[str, str, dict[str, Any]]


class HeldBackend(MemoryBackend):
    """A disk that syncs when it is allowed to, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.asked = threading.Event()
        self.failing = False

    def hold(self) -> None:
        self.asked.clear()
        self.may_sync.clear()

    def sync(self) -> None:
        self.asked.set()
        assert self.may_sync.wait(PATIENCE)
        if self.failing:
            raise StorageError("cannot sync: the disk is full")
        super().sync()


class Scene:
    """A broker with a durable session that is away, one that is there, and a retained message."""

    def __init__(self, durability: str = "sync") -> None:
        self.backend = HeldBackend()
        settings = Config(host="127.0.0.1", port=0, sys_interval=0, admin=admin(), durability=durability)
        self.broker = Broker(settings, backend=self.backend)
        self.app = make_app(LocalReach(Desk(self.broker)), FixedToken(settings.admin))

    async def call(self, order: Order) -> httpx.Response:
        method, path, options = order
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://broker") as client:
            return await client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"}, **options)

    def device(self, client_id: str) -> Client:
        return Client(
            "127.0.0.1", self.broker.port, client_id=client_id, reconnect=None, clean_start=False, session_expiry=1000
        )

    async def play(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.timeout(PATIENCE), self.broker:
            async with self.device("away") as client:
                await client.subscribe("t", qos=1)
                await client.publish("old", b"x", qos=1, retain=True)
            async with self.device("there"):
                await self.broker.committed()
                try:
                    await act()
                finally:
                    self.backend.may_sync.set()


@pytest.mark.parametrize("runner", [asyncio.run, run], ids=["guest", "ours"])
@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
def test_a_change_is_answered_when_it_is_on_disk(order: Order, runner: Any) -> None:
    scene = Scene()

    async def act() -> None:
        scene.backend.hold()
        answer = asyncio.create_task(scene.call(order))
        await asyncio.to_thread(scene.backend.asked.wait)
        for _ in range(3):  # those who need no disk do not wait, so this one would have had its answer by now
            assert (await scene.call(("GET", "/v1/statistics", {}))).status_code == 200
        assert not answer.done()
        scene.backend.may_sync.set()
        assert (await answer).status_code == 204

    runner(scene.play(act))


@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
def test_what_was_answered_survives_a_power_cut(order: Order) -> None:
    scene = Scene()
    left: list[MemoryBackend] = []

    async def act() -> None:
        assert (await scene.call(order)).status_code == 204
        left.append(scene.backend.crashed())

    run(scene.play(act))

    async def look() -> None:
        async with Broker(Config(host="127.0.0.1", port=0, sys_interval=0), backend=left[0]) as broker:
            sessions = broker.server.sessions
            retained = broker.server.router.retained
            waiting = sessions["away"].outbound.waiting() if "away" in sessions else 0
            assert (waiting == 1) == (order is PUBLISH)
            assert (retained.get("other") is not None) == (order is RETAIN)
            assert (retained.get("old") is None) == (order is DELETE_RETAINED)
            assert ("away" not in sessions) == (order is END_SESSION)
            assert ("there" not in sessions) == (order is END_CONNECTED_SESSION)

    run(look())


def test_qos_0_does_not_wait_for_the_disk() -> None:
    scene = Scene()

    async def act() -> None:
        scene.backend.hold()
        scene.broker.publish(Message("t", b"x", 1))
        await asyncio.to_thread(scene.backend.asked.wait)
        assert (await scene.call(("POST", "/v1/publish", {"json": {"topic": "t"}}))).status_code == 204

    run(scene.play(act))


def test_with_async_nobody_waits_for_the_disk() -> None:
    scene = Scene("async")

    async def act() -> None:
        scene.backend.hold()
        assert (await scene.call(PUBLISH)).status_code == 204

    run(scene.play(act))


def test_without_a_disk_there_is_nothing_to_wait_for() -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE), Broker(Config(host="127.0.0.1", port=0, sys_interval=0)) as broker:
            await broker.committed()

    run(main())


def test_when_nothing_has_changed_there_is_nothing_to_wait_for() -> None:
    scene = Scene()

    async def act() -> None:
        await scene.broker.committed()
        commits = scene.broker.statistics().commits
        scene.backend.hold()
        await scene.broker.committed()
        assert scene.broker.statistics().commits == commits

    run(scene.play(act))


def test_a_disk_that_fails_is_told_to_those_who_wait_and_to_those_who_come() -> None:
    scene = Scene()

    async def act() -> None:
        scene.backend.hold()
        scene.backend.failing = True
        answer = asyncio.create_task(scene.call(PUBLISH))
        await asyncio.to_thread(scene.backend.asked.wait)
        scene.backend.may_sync.set()
        for each in (await answer, await scene.call(PUBLISH)):
            assert each.status_code == 503
            assert "the disk is full" in each.json()["detail"]

    run(scene.play(act))


def test_whoever_does_not_wait_any_more_is_no_trouble() -> None:
    scene = Scene()

    async def act() -> None:
        scene.backend.hold()
        scene.broker.publish(Message("t", b"x", 1))
        impatient = asyncio.create_task(scene.broker.committed())
        await asyncio.to_thread(scene.backend.asked.wait)
        impatient.cancel()
        await asyncio.wait({impatient})
        scene.backend.may_sync.set()
        await scene.broker.committed()
        assert scene.broker.failure is None

    run(scene.play(act))
