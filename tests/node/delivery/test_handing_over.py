"""The source of a hand-over: publishers wait and nothing is refused, for a bounded time; and the fence is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.admin.desk import Desk
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.handing_over import HandingOver, HandOverRefused
from headwater.store.hand_over import read_fence

PATIENCE = 20.0


def run(folder: Path, work: Callable[[Broker, HandingOver, Client], Awaitable[None]]) -> None:
    config = Config(host="127.0.0.1", port=0, data_dir=str(folder / "data"), store={"enabled": True}, sys_interval=0)

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), Broker(config) as broker:
            handing = broker.handing_over()
            assert handing is not None
            async with Client("127.0.0.1", broker.port) as client:
                await work(broker, handing, client)

    asyncio.run(scenario())


def next_position(broker: Broker) -> int:
    assert broker.store is not None
    return broker.store.next


def test_publishers_wait_until_the_freeze_is_over(tmp_path: Path) -> None:
    async def work(broker: Broker, handing: HandingOver, client: Client) -> None:
        await client.publish("a", b"1", qos=1)
        id = handing.begin("new")["hand_over"]
        await handing.freeze(id, 0.3)
        assert handing.state()["frozen"] is not None
        publishing = asyncio.ensure_future(client.publish("a", b"2", qos=1))
        done, _ = await asyncio.wait([publishing], timeout=0.15)
        assert not done
        assert next_position(broker) == 2
        await publishing  # when the time is over
        assert next_position(broker) == 3
        with pytest.raises(HandOverRefused, match="the time of the freeze is over"):
            handing.fence(id, 1)
        assert read_fence(tmp_path / "data" / "messages") is None

    run(tmp_path, work)


def test_who_connects_meanwhile_makes_another_round(tmp_path: Path) -> None:
    """It is read from once; then it waits, too."""

    async def work(broker: Broker, handing: HandingOver, client: Client) -> None:
        id = handing.begin("new")["hand_over"]
        await handing.freeze(id, 30.0)
        async with Client("127.0.0.1", broker.port) as late:
            await late.publish("a", b"1", qos=1)
            with pytest.raises(HandOverRefused, match="more was taken: up to 1, not 0"):
                handing.fence(id, 0)
            waiting = asyncio.ensure_future(late.publish("a", b"2", qos=1))
            done, _ = await asyncio.wait([waiting], timeout=0.15)
            assert not done
            copied = await handing.copy(id)
            assert copied["next"] == 2
            assert handing.fence(id, 1)["fence"]["position"] == 1
            assert handing.fence(id, 1)["fence"]["position"] == 1, "asked again, it says the same"
            await handing.release(id)
            await waiting
        assert next_position(broker) == 2, "what came then is not stored here"

    run(tmp_path, work)


def test_a_hand_over_ends_when_another_one_begins(tmp_path: Path) -> None:
    async def work(broker: Broker, handing: HandingOver, client: Client) -> None:
        first = handing.begin("new")["hand_over"]
        await handing.copy(first)
        second = handing.begin("newer")["hand_over"]
        for refused in (handing.copy(first), handing.freeze(first, 1.0), handing.release(first)):
            with pytest.raises(HandOverRefused, match="has ended, or another one has begun"):
                await refused
        await handing.freeze(second, 30.0)
        with pytest.raises(HandOverRefused, match="going to newer at this moment"):
            handing.begin("newest")
        second = handing.begin("newer")["hand_over"]
        assert handing.state()["frozen"] is None, "who was killed and comes back lets nobody wait for its former self"
        await handing.release(second)
        await client.publish("a", b"1", qos=1)
        assert not list((tmp_path / "data").glob("snapshot-*"))
        third = handing.begin("newest")["hand_over"]
        await handing.freeze(third, 30.0)
        handing.fence(third, 1)
        with pytest.raises(HandOverRefused, match="was handed over to newest at position 1"):
            handing.begin("late")

    run(tmp_path, work)


def test_a_copy_that_nobody_asks_for_any_more_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.node.delivery.handing_over.IDLE", 0.05)

    async def work(broker: Broker, handing: HandingOver, client: Client) -> None:
        id = handing.begin("new")["hand_over"]
        copying = asyncio.ensure_future(handing.copy(id))
        await asyncio.sleep(0)
        with pytest.raises(HandOverRefused, match="being made already"):
            await handing.copy(id)
        assert (await copying)["files"]
        while list((tmp_path / "data").glob("snapshot-*")):
            await asyncio.sleep(0.01)
        with pytest.raises(HandOverRefused, match="no file"):
            handing.file(id, "messages.json")

    run(tmp_path, work)


def test_only_files_of_the_copy_are_given(tmp_path: Path) -> None:
    async def work(broker: Broker, handing: HandingOver, client: Client) -> None:
        await client.publish("a", b"1", qos=1)
        id = handing.begin("new")["hand_over"]
        with pytest.raises(HandOverRefused, match="no file"):
            handing.file(id, "messages.json")
        copied = await handing.copy(id)
        names = [each["name"] for each in copied["files"]]
        assert "messages.json" in names
        for each in copied["files"]:
            assert Path(handing.file(id, each["name"])).stat().st_size == each["size"]
        for name in ("../../headwater.json", "/etc/passwd", "db", "", "x"):
            with pytest.raises(HandOverRefused, match="no file"):
                handing.file(id, name)

    run(tmp_path, work)


def test_a_node_without_a_store_hands_nothing_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Broker(Config(host="127.0.0.1", port=0)) as broker:
            desk = Desk(broker)
            for ask in (desk.hand_over_state, lambda: desk.begin_hand_over("x")):
                with pytest.raises(ValueError, match="no delivery store"):
                    ask()

    asyncio.run(scenario())
