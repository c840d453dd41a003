"""What is asked of a broker by name: long lists take slices of its turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

from headwater.node.admin.desk import OPERATIONS, Desk
from headwater.node.admin.slices import TOGETHER, Slices
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.plane.selector import run
from tests.node.admin.api import Api

PATIENCE = 20.0


def test_every_operation_is_there() -> None:
    assert all(callable(getattr(Desk, name)) for name in OPERATIONS)


def test_a_long_list_has_slices_of_turns() -> None:
    """Others have their turns between two slices."""

    async def listing() -> None:
        async with Broker(Config(host="127.0.0.1", port=0, sys_interval=0)) as broker:
            loop = asyncio.get_running_loop()
            others = 0

            def other() -> None:
                nonlocal others
                others += 1
                loop.call_soon(other)

            def steps() -> Generator[None, None, int]:
                for _ in range(2000):
                    sum(range(500))  # some microseconds
                    yield
                return others

            loop.call_soon(other)
            assert await asyncio.wait_for(Slices(broker).made(steps()), PATIENCE) > 20

    run(listing())


def test_lists_are_made_two_at_a_time() -> None:
    async def listing() -> None:
        async with Broker(Config(host="127.0.0.1", port=0, sys_interval=0)) as broker:
            slices = Slices(broker)
            under_way = most = 0

            def steps() -> Generator[None, None, None]:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                for _ in range(200):
                    yield
                under_way -= 1

            await asyncio.wait_for(asyncio.gather(*(slices.made(steps()) for _ in range(10))), PATIENCE)
            assert most == TOGETHER

    run(listing())


def test_who_does_not_wait_any_more_is_not_worked_for() -> None:
    async def listing() -> None:
        async with Broker(Config(host="127.0.0.1", port=0, sys_interval=0)) as broker:
            done = 0

            def steps() -> Generator[None, None, None]:
                nonlocal done
                while True:
                    done += 1
                    yield

            slices = Slices(broker)
            asked = asyncio.ensure_future(slices.made(steps()))
            while not done:
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

            def last() -> Generator[None, None, int]:
                yield
                return done

            before = await asyncio.wait_for(slices.made(last()), PATIENCE)
            assert await asyncio.wait_for(slices.made(last()), PATIENCE) == before
            assert not broker.server.background.waiting

    run(listing())


def test_what_is_answered_is_json() -> None:
    api = Api()
    api.client("a", "x/#", "$share/g/y")
    desk = Desk(api.broker)

    async def asking() -> dict[str, Any]:
        lists = {
            "clients": await desk.clients(0, 10),
            "sessions": await desk.sessions(0, 10),
            "subscriptions": await desk.subscriptions(None, "0:0", 10),
            "retained": await desk.retained("#", 0, 10),
            "groups": await desk.groups(),
        }
        return {name: json.loads(text) for name, text in lists.items()}

    found = asyncio.run(asking())
    assert [each["client_id"] for each in found["clients"]["items"]] == ["a"]
    assert [each["filter"] for each in found["subscriptions"]["items"]] == ["x/#", "$share/g/y"]
    assert found["retained"] == {"items": [], "next": None}
    assert [(each["name"], len(each["members"])) for each in found["groups"]] == [("$share/g/y", 1)]
