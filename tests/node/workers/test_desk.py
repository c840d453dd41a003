"""One desk for many: brokers in memory in place of workers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from headwater.node.admin import desk as admin
from headwater.node.admin.reach import BrokerStopped
from headwater.node.http.link import LinkLost
from headwater.node.workers.desk import NodeDesk
from headwater.node.workers.process import WorkerProcess
from headwater.node.workers.totals import Totals
from headwater.node.workers.worker import WorkerDesk
from headwater.wire.packets import Subscribe, SubscribeRequest
from tests.node.admin.api import Api


class FakeLink:
    """A link to a desk; what is said goes through JSON."""

    def __init__(self, api: Api) -> None:
        self.desk = WorkerDesk(api.broker)
        self.is_lost = False
        self.told: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
        if self.is_lost:
            raise LinkLost
        if body:
            arguments["body"] = body
        found = getattr(self.desk, name)(**arguments)
        found = await found if asyncio.iscoroutine(found) else found
        return found if isinstance(found, bytes) else from_json(to_json(found))

    def tell(self, name: str, /, **arguments: Any) -> None:
        self.told.append((name, from_json(to_json(arguments))))


class FakeWorker(WorkerProcess):
    def __init__(self, number: int, api: Api) -> None:
        self.number = number
        self.restarts = 0
        self.process = 100 + number
        self.api = api
        self.link = FakeLink(api)  # type: ignore[assignment]


class Workers:
    def __init__(self, *clients: list[str]) -> None:
        """The ids of clients of each worker."""
        self.apis = [Api() for _ in clients]
        for api, ids in zip(self.apis, clients, strict=True):
            for each in ids:
                api.client(each, f"{each}/#", "all")
        self.all = [FakeWorker(number, api) for number, api in enumerate(self.apis)]
        self.totals = Totals(self.all)
        self.desk = NodeDesk(self.all, self.totals)

    def ask(self, name: str, **arguments: Any) -> Any:
        found = asyncio.run(getattr(self.desk, name)(**arguments))
        for api in self.apis:
            api.memory.turn()
        return found

    def pages(self, name: str, limit: int, **arguments: Any) -> list[str]:
        key, place = ("after", "0:0") if name == "subscriptions" else ("offset", 0)
        ids: list[str] = []
        while place is not None:
            page = json.loads(self.ask(name, limit=limit, **{key: place}, **arguments))
            assert len(page["items"]) <= limit
            ids += [each["client_id"] for each in page["items"]]
            place = page["next"]
        return ids


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_lists_go_from_worker_to_worker(limit: int) -> None:
    workers = Workers(["a", "b", "c"], [], ["d", "e"])
    assert workers.pages("sessions", limit) == ["a", "b", "c", "d", "e"]
    assert sorted(workers.pages("clients", limit)) == ["a", "b", "c", "d", "e"]
    assert workers.pages("subscriptions", limit, client_id=None) == [*"aabbccddee"]
    assert workers.pages("subscriptions", limit, client_id="d") == ["d", "d"]


def test_a_worker_that_is_away_is_left_out() -> None:
    workers = Workers(["a"], ["b"], ["c"])
    workers.all[1].link = None
    assert workers.pages("sessions", 10) == ["a", "c"]
    workers.all[0].link.is_lost = True  # type: ignore[union-attr]
    assert workers.pages("sessions", 10) == ["c"]
    assert workers.ask("session", client_id="a") is None
    assert workers.ask("session", client_id="c")["client_id"] == "c"
    assert workers.desk.is_ready()
    workers.all[0].link = workers.all[2].link = None
    assert not workers.desk.is_ready()
    with pytest.raises(BrokerStopped):
        workers.ask("session", client_id="c")
    with pytest.raises(BrokerStopped):
        workers.ask("retained_message", topic="x")


def test_figures_are_added_up_and_those_of_the_dead_stay() -> None:
    workers = Workers(["a", "b"], ["c"])
    before = workers.ask("statistics")
    assert (before.connections, before.sessions, before.subscriptions) == (3, 3, 6)
    gone = workers.all[1]
    link, gone.link = gone.link, None
    workers.totals.went(gone)
    after = workers.ask("statistics")
    assert (after.connections, after.sessions) == (2, 2)
    assert after.received == before.received, "counters do not go back"
    assert [each.up for each in workers.ask("workers")] == [False, False], "a broker in memory listens nowhere"
    gone.link = link


def test_each_worker_is_told_of_the_others() -> None:
    workers = Workers(["a", "b"], ["c"])
    workers.ask("statistics")
    workers.totals._tell_others()
    told = [each.link.told[-1][1]["statistics"]["connections"] for each in workers.all]  # type: ignore[union-attr]
    assert told == [1, 2]


def test_groups_with_members_at_several_workers_are_one() -> None:
    workers = Workers([], [])
    for number, api in enumerate(workers.apis):
        client = api.client(f"member-{number}", version=5)
        client.send(Subscribe(2, [SubscribeRequest("$share/g/jobs", 1)]))
    [group] = json.loads(workers.ask("groups"))
    assert [each["client_id"] for each in group["members"]] == ["member-0", "member-1"]


def test_a_worker_that_was_started_again_is_told_bans_and_dispatchers() -> None:
    workers = Workers(["a"], ["b"])
    workers.ask("ban", kind="user", value="mallory", seconds=None, reason="r")
    workers.ask("use_dispatcher", pattern="$share/+/#", dispatcher="random")
    fresh = FakeWorker(1, Api())
    workers.all[1].link = fresh.link
    assert fresh.api.broker.bans() == []
    asyncio.run(workers.desk.teach(fresh))
    assert [(each.kind, each.value, each.reason) for each in fresh.api.broker.bans()] == [("user", "mallory", "r")]
    member = fresh.api.client("m", "$share/g/x")
    assert member is not None
    assert [each.dispatcher for each in fresh.api.broker.shared_groups()] == ["random"]


def test_all_operations_are_there() -> None:
    desk = Workers([]).desk
    assert [name for name in admin.OPERATIONS if not callable(getattr(desk, name, None))] == []


def test_bans_are_listed_once_and_in_pages() -> None:
    workers = Workers([], [])
    for number in range(5):
        workers.ask("ban", kind="user", value=f"u{number}", seconds=60.0, reason="r")
    workers.apis[1].broker.ban("address", "192.0.2.1", 60.0, "failures")
    found: list[str] = []
    place: int | None = 0
    while place is not None:
        page = workers.ask("bans", offset=place, limit=2)
        found += [each["value"] for each in page["items"]]
        place = page["next"]
    assert sorted(found) == ["192.0.2.1", "u0", "u1", "u2", "u3", "u4"]


def test_a_trace_is_at_all_workers_until_it_ends_at_one() -> None:
    workers = Workers([], [])

    async def scenario() -> None:
        desk = workers.desk
        number = await desk.start_trace(client_id="traced", seconds=60.0, packets=1)
        waiting = asyncio.create_task(desk.taken(number))
        await asyncio.sleep(0)
        workers.apis[1].client("traced", version=5)
        records = await waiting
        assert [each.get("packet") for each in records] == ["CONNECT", None]
        assert records[-1]["ended"] == "as many packets as asked for"
        assert await desk.taken(number) == [], "it ends everywhere when it ends where the client is"
        await desk.end_trace(number)
        assert not any(api.broker.hooks.slow for api in workers.apis), "nobody traces any more"

    asyncio.run(scenario())
