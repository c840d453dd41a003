"""A mirror of an edge of several stores, between which topics move: each message once, and no topic goes backwards."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge import state as states
from headwater.edge.copies import Copy
from headwater.edge.mirror import Mirror, MirrorError, Report, Wishes
from headwater.edge.outputs import FileOutput, FolderOutput, FunctionOutput, Output
from headwater.store.directory import Directory, Holding, Move
from headwater.store.retention import Retention
from tests.edge.fakes import Edge, FakeClient, FakeReader
from tests.edge.test_mirror import QUICK, run

TOPICS = ("x", "y")


class Tiers:
    """Stores `a`, `b`, …; every topic of TOPICS is owned by one of them. What is published comes with its number."""

    def __init__(self, *ids: str, retention: Retention | None = None) -> None:
        self.edges = {id: Edge(id, retention) for id in ids}
        self.readers = {id: FakeReader(edge) for id, edge in self.edges.items()}
        subscribers: list[FakeClient] = []
        for id, edge in self.edges.items():
            edge.subscribers = subscribers
            self.readers[id].others = {self.url(other): self.readers[other] for other in ids}
        self.holdings: list[Holding] = []
        self.moves: list[Move] = []
        self.epoch = 0
        self.owner: dict[str, str] = {}
        self.published: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        for topic in TOPICS:
            self.move(topic, ids[0])

    @staticmethod
    def url(id: str) -> str:
        return f"http://{id}"

    def move(self, topic: str, to: str) -> None:
        """At once; `tell` says so."""
        old = self.owner.get(topic)
        if old == to:
            return
        self.epoch += 1
        if old is not None:
            last = self.edges[old].store.next - 1
            self.holdings = [
                each._replace(last=last) if each.last is None and each.filters == (topic,) else each
                for each in self.holdings
            ]
        first = self.edges[to].store.next
        self.holdings.append(Holding(to, f"node-{to}", self.url(to), (topic,), first, None, self.epoch))
        self.owner[topic] = to
        self.tell()

    def tell(self) -> None:
        for id, reader in self.readers.items():
            reader.known = Directory(self.holdings, self.moves, f"node-{id}")

    def publish(self, topic: str, *, lost: bool = False) -> None:
        payload = str(len(self.published[topic])).encode()
        self.published[topic].append(payload)
        self.edges[self.owner[topic]].publish(topic, payload, lost=lost)

    def is_all_in(self, copies: list[Copy]) -> bool:
        return all(
            [each.payload for each in copies if each.topic == topic] == self.published[topic] for topic in TOPICS
        )


class Mirrored:
    """`async with` a mirror that begins with the store `a`."""

    def __init__(self, tiers: Tiers, output: Output | None = None, **wishes: Any) -> None:
        self.copies: list[Copy] = []
        client = FakeClient(tiers.edges["a"])
        reader = tiers.readers["a"]
        self.output = output or FunctionOutput(self.copies.extend)
        self.mirror = Mirror(client, reader, self.output, Wishes(interval=QUICK, **wishes), self._told)
        self._news = asyncio.Event()

    def _told(self, report: Report) -> None:
        self.report = report
        self._news.set()

    async def __aenter__(self) -> Mirrored:
        self.task = asyncio.ensure_future(self.mirror.run())
        await self.compared()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.mirror.stop()
        self.final = await self.task

    async def compared(self, times: int = 1) -> None:
        for _ in range(times):
            self._news.clear()
            waiting = asyncio.ensure_future(self._news.wait())
            await asyncio.wait([waiting, self.task], return_when="FIRST_COMPLETED")
            waiting.cancel()
            if self.task.done():
                self.task.result()


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.store.edge_reader.ALONE_FOR", 0.0)


def test_a_split_and_a_join_while_it_runs() -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        mirrored = Mirrored(tiers)
        async with mirrored:
            tiers.publish("x")
            tiers.publish("y", lost=True)
            tiers.move("x", "b")
            tiers.publish("x")
            tiers.publish("x", lost=True)
            await mirrored.compared(2)
            tiers.move("x", "a")
            tiers.publish("x", lost=True)
            tiers.publish("y")
        assert tiers.is_all_in(mirrored.copies)
        assert [each.place for each in mirrored.copies if each.topic == "x"] == [1, "b:1", "b:2", 3]
        final = mirrored.final
        assert (final.made, final.lost, final.duplicate) == (6, 0, 0)
        assert final.live + final.recovered == 6
        assert final.positions == {"a": 4, "b": 2}
        assert final.behind == 0

    run(scenario())


def test_what_moved_before_it_began_is_there_in_order() -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        for _ in range(3):
            for id in ("b", "a"):
                tiers.publish("x")
                tiers.publish("y")
                tiers.move("x", id)
        mirrored = Mirrored(tiers, until_complete=True)
        report = await mirrored.mirror.run()
        assert tiers.is_all_in(mirrored.copies)
        assert report.made == 12

    run(scenario())


def test_a_store_that_has_ended_and_gone_is_not_waited_for() -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        tiers.publish("x")
        tiers.move("x", "b")
        tiers.publish("x")
        mirrored = Mirrored(tiers)
        async with mirrored:
            await mirrored.compared()
            tiers.move("x", "a")
            await mirrored.compared()
            tiers.readers["b"].down = True
            tiers.publish("x")
            await mirrored.compared(2)
            assert tiers.is_all_in(mirrored.copies)
        again = Mirrored(tiers, FunctionOutput(mirrored.copies.extend, mirrored.output.state), until_complete=True)  # type: ignore[attr-defined]
        tiers.publish("y")
        await again.mirror.run()
        assert tiers.is_all_in(mirrored.copies)

    run(scenario())


def test_what_comes_after_a_store_that_is_away_waits_for_it() -> None:
    """The other topics go on."""

    async def scenario() -> None:
        tiers = Tiers("a", "b")
        tiers.move("x", "b")
        mirrored = Mirrored(tiers)
        async with mirrored:
            tiers.readers["b"].down = True
            tiers.publish("x")
            tiers.move("x", "a")
            tiers.publish("y")
            tiers.publish("x")
            await mirrored.compared(2)
            assert [(each.topic, each.payload) for each in mirrored.copies] == []
            assert mirrored.report.behind >= 2
            tiers.readers["b"].down = False
            await mirrored.compared(2)
            assert tiers.is_all_in(mirrored.copies)

    run(scenario())


def test_while_a_move_goes_on_the_new_stores_part_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        mirrored = Mirrored(tiers)
        async with mirrored:
            tiers.publish("x")
            tiers.move("x", "b")
            ended = tiers.holdings
            tiers.holdings = [each._replace(last=None) for each in ended]
            tiers.moves = [Move("x", tiers.epoch, ("node-a",), time.time())]
            tiers.tell()
            tiers.publish("x", lost=True)
            await mirrored.compared(2)
            assert [each.place for each in mirrored.copies] == [1]
            tiers.edges["a"].publish("x", b"late")  # what was under way when the topic moved
            tiers.holdings = [each._replace(last=2) if each == ended[0] else each for each in ended]
            tiers.moves = []
            tiers.tell()
            await mirrored.compared(2)
            assert [each.place for each in mirrored.copies] == [1, 2, "b:1"]

    run(scenario())


def test_start_next_is_meant_for_the_stores_that_are_there() -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b", "c")
        tiers.publish("x")
        tiers.move("x", "b")
        tiers.publish("x")
        mirrored = Mirrored(tiers, start="next")
        async with mirrored:
            tiers.publish("x")
            tiers.move("y", "c")
            tiers.publish("y")
        assert [each.place for each in mirrored.copies] == ["b:2", "c:1"]

    run(scenario())


def test_a_reader_is_committed_at_every_store() -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        mirrored = Mirrored(tiers, reader="cloud")
        async with mirrored:
            tiers.publish("x")
            tiers.move("x", "b")
            tiers.publish("x")
            tiers.publish("x")
        assert tiers.edges["a"].store.reader("cloud").position == 1
        assert tiers.edges["b"].store.reader("cloud").position == 2

    run(scenario())


def test_a_state_of_one_store_goes_on_with_many(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        tiers.publish("x")
        path = tmp_path / "out.ndjson"
        await Mirrored(tiers, FileOutput(path), until_complete=True).mirror.run()
        before = json.loads((tmp_path / "out.ndjson.state").read_text())
        assert before["version"] == 1
        assert "others" not in before["state"]
        tiers.move("x", "b")
        tiers.publish("x")
        await Mirrored(tiers, FileOutput(path), until_complete=True).mirror.run()
        after = json.loads((tmp_path / "out.ndjson.state").read_text())
        assert after["version"] == 2
        kept = states.read(tmp_path / "out.ndjson.state")
        assert kept is not None
        assert [(each.store, each.position) for each in kept.state.others] == [("b", 1)]
        await Mirrored(tiers, FileOutput(path), until_complete=True).mirror.run()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["position"] for row in rows] == [1, "b:1"]
        del tiers.readers["a"].others["http://b"]
        tiers.readers["a"].known = Directory([tiers.holdings[1]], (), "node-a")
        with pytest.raises(MirrorError, match="store b, which is none of this edge"):
            await Mirrored(tiers, FileOutput(path)).mirror.run()

    run(scenario())


def test_a_folder_goes_on_when_positions_begin_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        for _ in range(5):
            tiers.publish("x")
        tiers.move("x", "b")
        for _ in range(5):
            tiers.publish("x")
        for _ in range(2):
            output = FolderOutput(tmp_path / "out", most=1)
            await Mirrored(tiers, output, until_complete=True).mirror.run()
            tiers.publish("x")
            tiers.publish("y")
        names = sorted(path.name for path in (tmp_path / "out").glob("*.ndjson"))
        rows = [json.loads(line) for name in names for line in (tmp_path / "out" / name).read_text().splitlines()]
        assert [row["payload"] for row in rows if row["topic"] == "x"] == [str(number) for number in range(11)]
        assert len(names) > 2

    run(scenario())


def test_an_edge_that_the_broker_is_not_of() -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b")
        mirrored = Mirrored(tiers)
        async with mirrored:
            tiers.edges["a"].subscribers[0].deliver("x", b"", "z:7")  # of a store that is nowhere: it is let go
            tiers.publish("x")
        assert tiers.is_all_in(mirrored.copies)

    run(scenario())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.booleans()),
            st.tuples(st.just("move"), st.sampled_from(TOPICS), st.sampled_from("abc")),
            st.tuples(st.just("down"), st.sampled_from("bc"), st.booleans()),
            st.tuples(st.just("compare"), st.just(""), st.just("")),
        ),
        max_size=30,
    )
)
def test_any_history_of_moves(steps: list[tuple[str, str, Any]]) -> None:
    async def scenario() -> None:
        tiers = Tiers("a", "b", "c")
        mirrored = Mirrored(tiers)
        async with mirrored:
            for what, about, how in steps:
                if what == "publish":
                    tiers.publish(about, lost=how)
                elif what == "move":
                    tiers.move(about, how)
                elif what == "down":
                    tiers.readers[about].down = how
                else:
                    await mirrored.compared()
                for topic in TOPICS:
                    got = [each.payload for each in mirrored.copies if each.topic == topic]
                    assert got == tiers.published[topic][: len(got)]
            for reader in tiers.readers.values():
                reader.down = False
            await mirrored.compared(2)
        assert tiers.is_all_in(mirrored.copies)
        assert mirrored.final.lost == 0
        assert mirrored.final.made == sum(map(len, tiers.published.values()))

    run(scenario())
