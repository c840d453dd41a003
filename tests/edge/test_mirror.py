"""The mirror has each message once and in order, whatever MQTT loses, brings twice or brings late."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge import strand as module
from headwater.edge.copies import Copy
from headwater.edge.mirror import Mirror, MirrorError, Report, Wishes, mirror
from headwater.edge.outputs import FileOutput, FunctionOutput
from headwater.message import POSITION_PROPERTY
from headwater.store.reader import Refused, Unreachable
from headwater.store.retention import Retention
from tests.edge.fakes import Edge, FakeClient, FakeReader

PATIENCE = 20.0
QUICK = 0.02


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    asyncio.run(bounded())


class Mirrored:
    """`async with` a mirror of an edge, and what it has written."""

    def __init__(
        self, edge: Edge, *filters: str, reader: FakeReader | None = None, name: str | None = None, **wishes: Any
    ) -> None:
        self.copies: list[Copy] = []
        self.client = FakeClient(edge)
        self.reader = reader or FakeReader(edge)
        self.output = FunctionOutput(self.copies.extend)
        wishes = {"interval": QUICK, "reader": name, **wishes}
        self.mirror = Mirror(self.client, self.reader, self.output, Wishes(filters or ("#",), **wishes), self._told)
        self._news = asyncio.Event()

    def _told(self, report: Report) -> None:
        self.report = report
        self._news.set()

    async def __aenter__(self) -> Mirrored:
        self.task = asyncio.ensure_future(self.mirror.run())
        await self.until(lambda report: True)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.mirror.stop()
        self.final = await self.task

    async def until(self, is_so: Callable[[Report], bool]) -> None:
        while True:
            self._news.clear()
            await asyncio.wait([asyncio.ensure_future(self._news.wait()), self.task], return_when="FIRST_COMPLETED")
            if self.task.done():
                self.task.result()
            if is_so(self.report):
                return

    @property
    def rows(self) -> list[tuple[int, str, bytes]]:
        return [copy[:3] for copy in self.copies]


def counts(report: Report) -> tuple[int, int, int, int]:
    return report.live, report.recovered, report.duplicate, report.lost


def test_what_comes_by_mqtt_is_written_once_and_nothing_is_asked_for() -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        async with mirrored:
            for number in range(10):
                edge.publish("a/b", str(number).encode())
        assert mirrored.rows == edge.expected("#")
        assert counts(mirrored.final) == (10, 0, 0, 0)
        assert mirrored.reader.reads == []
        assert mirrored.final.completeness == 1.0
        assert mirrored.client.asked is not None
        assert mirrored.client.asked.user_properties == [(POSITION_PROPERTY, "yes")]

    run(scenario())


def test_a_late_cloud_gets_the_earlier_part_by_rest() -> None:
    async def scenario() -> None:
        edge = Edge()
        for number in range(7):
            edge.publish("a", str(number).encode())
        mirrored = Mirrored(edge)
        async with mirrored:
            edge.publish("a", b"live")
        assert mirrored.rows == edge.expected("#")
        assert counts(mirrored.final) == (1, 7, 0, 0)

    run(scenario())


def test_start_next_leaves_the_earlier_part() -> None:
    async def scenario() -> None:
        edge = Edge()
        edge.publish("a", b"old")
        mirrored = Mirrored(edge, start="next")
        async with mirrored:
            edge.publish("a", b"new", lost=True)
        assert mirrored.rows == [(2, "a", b"new")]

    run(scenario())


def test_what_mqtt_lost_is_recovered_and_what_came_again_is_left_out() -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        async with mirrored:
            for number in range(20):
                edge.publish("a", str(number).encode(), lost=number % 5 == 0, times=2 if number == 7 else 1)
        assert mirrored.rows == edge.expected("#")
        assert counts(mirrored.final) == (16, 4, 1, 0)

    run(scenario())


def test_what_comes_after_it_was_recovered_is_a_duplicate() -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        async with mirrored:
            edge.publish("a", b"1", lost=True)
            await mirrored.until(lambda report: report.recovered == 1)
            mirrored.client.deliver("a", b"1", "s1:1")
            await mirrored.until(lambda report: report.duplicate == 1)
        assert mirrored.rows == edge.expected("#")

    run(scenario())


def test_what_comes_while_it_is_being_recovered_is_a_duplicate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that fetches it has not written it yet when MQTT brings it after all."""

    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        loop = asyncio.get_running_loop()
        real = mirrored.reader.read

        def with_news(*args: Any, **named: Any) -> Any:
            def news() -> None:
                mirrored.client.deliver("a", b"1", "s1:1")

            yield from real(*args, **named)
            loop.call_soon_threadsafe(news)
            time.sleep(0.05)  # until the loop has had its turn

        async with mirrored:
            monkeypatch.setattr(mirrored.reader, "read", with_news)
            edge.publish("a", b"1", lost=True)
            await mirrored.until(lambda report: report.recovered == 1)
            await mirrored.until(lambda report: report.duplicate == 1)
            edge.publish("a", b"2")
        assert mirrored.rows == edge.expected("#")
        assert counts(mirrored.final) == (1, 1, 1, 0)

    run(scenario())


def test_a_filter_leaves_gaps_that_are_not_missing() -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge, "b/#", "+/x")
        async with mirrored:
            for number in range(12):
                edge.publish(["a/y", "b/x", "c/x"][number % 3], str(number).encode(), lost=number in (4, 5))
        assert mirrored.rows == edge.expected("b/#", "+/x")
        assert counts(mirrored.final) == (6, 2, 0, 0)

    run(scenario())


def test_a_store_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        async with mirrored:
            mirrored.reader.down = True
            for number in range(5):
                edge.publish("a", str(number).encode(), lost=number == 2)
            await mirrored.until(lambda report: "nobody listens" in caplog.text)
            assert mirrored.copies == []
            mirrored.reader.down = False
            await mirrored.until(lambda report: report.position == 5)
        assert mirrored.rows == edge.expected("#")
        assert counts(mirrored.final) == (4, 1, 0, 0)

    run(scenario())


def test_a_store_that_goes_away_in_the_middle_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was held for the comparison is not lost with it."""

    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        real = mirrored.reader.read

        def cut(*args: Any, **named: Any) -> Any:
            mirrored.reader.down = True
            return real(*args, **named)

        monkeypatch.setattr(mirrored.reader, "read", cut)
        async with mirrored:
            edge.publish("a", b"1")
            edge.publish("a", b"2", lost=True)
            edge.publish("a", b"3")
            await mirrored.until(lambda report: mirrored.reader.down)
            monkeypatch.setattr(mirrored.reader, "read", real)
            mirrored.reader.down = False
        assert mirrored.rows == edge.expected("#")
        assert counts(mirrored.final) == (2, 1, 0, 0)

    run(scenario())


def test_beyond_its_bound_it_lets_go_of_what_the_store_has() -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge, interval=60.0, most_held=5_000)
        async with mirrored:
            for number in range(50):
                edge.publish("a", bytes(1000) + str(number).encode())
        assert mirrored.rows == edge.expected("#")
        assert mirrored.final.live < 10
        assert mirrored.final.live + mirrored.final.recovered == 50

    run(scenario())


def test_groups_are_committed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP", 10)

    async def scenario() -> None:
        edge = Edge()
        for _ in range(35):
            edge.publish("a")
        mirrored = Mirrored(edge)
        states: list[int] = []
        commit = mirrored.output.commit
        monkeypatch.setattr(mirrored.output, "commit", lambda state: (states.append(state.position), commit(state)))
        async with mirrored:
            pass
        assert states == [10, 20, 30, 35]

    run(scenario())


# ---- retention ---------------------------------------------------------------------------------------------------


def test_what_retention_took_is_counted_as_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        edge = Edge(retention=Retention(age=1))
        client = FakeClient(edge)
        wishes = Wishes(interval=QUICK, until_complete=True)
        for _ in range(3):
            edge.publish("a")
        first = await mirror(client, FakeReader(edge), FileOutput(tmp_path / "out"), wishes)
        assert counts(first) == (0, 3, 0, 0)
        for _ in range(4):
            edge.publish("a")
        edge.store.trim(2_000_000)
        edge.publish("a", b"left")
        assert edge.store.first == 8
        for _ in range(2):  # again, which must not count it again
            again = await mirror(FakeClient(edge), FakeReader(edge), FileOutput(tmp_path / "out"), wishes)
            assert counts(again) == (0, 4, 0, 4)
            assert again.made == 8
            assert again.completeness == 0.5
        lines = (tmp_path / "out").read_text().splitlines()
        assert [json.loads(line)["position"] for line in lines] == [1, 2, 3, 8]

    run(scenario())


def test_what_came_by_mqtt_is_not_lost_when_retention_is_faster() -> None:
    async def scenario() -> None:
        edge = Edge(retention=Retention(age=1))
        mirrored = Mirrored(edge, interval=60.0)
        async with mirrored:
            for number in range(6):
                edge.publish("a", lost=number == 3)
            await asyncio.sleep(0)
            edge.store.trim(2_000_000)
            edge.publish("a")
        assert [row[0] for row in mirrored.rows] == [1, 2, 3, 5, 6, 7]
        assert counts(mirrored.final) == (6, 0, 0, 1)

    run(scenario())


def test_what_came_among_what_is_lost_is_not_counted_as_lost() -> None:
    """Many gaps are one question, which is answered with: all of that is gone."""

    async def scenario() -> None:
        edge = Edge(retention=Retention(age=1))
        mirrored = Mirrored(edge, interval=60.0)
        async with mirrored:
            for number in range(40):
                edge.publish("a", lost=number % 2 == 0)
            await asyncio.sleep(0)
            edge.store.trim(2_000_000)
            edge.publish("a")
        assert counts(mirrored.final) == (21, 0, 0, 20)
        assert [row[0] for row in mirrored.rows] == [*range(2, 41, 2), 41]

    run(scenario())


def test_a_named_reader_holds_retention_back() -> None:
    async def scenario() -> None:
        edge = Edge(retention=Retention(age=1))
        mirrored = Mirrored(edge, name="cloud")
        async with mirrored:
            assert edge.store.reader("cloud").position == 0
            edge.publish("a")
            await mirrored.until(lambda report: report.position == 1)
            assert edge.store.reader("cloud").position == 1

    run(scenario())


# ---- whom it may ask ---------------------------------------------------------------------------------------------


def test_a_caller_that_may_not_read_everything() -> None:
    """It learns from its topics how far the store has come."""

    async def scenario() -> None:
        edge = Edge()
        edge.publish("secret/a")
        edge.publish("mine/a", b"1")
        reader = FakeReader(edge, ["mine/#"])
        mirrored = Mirrored(edge, "mine/#", reader=reader)
        async with mirrored:
            edge.publish("mine/a", b"2", lost=True)
            edge.publish("secret/a")
            edge.publish("mine/b", b"3")
            edge.publish("secret/a")
        assert mirrored.rows == edge.expected("mine/#")
        assert counts(mirrored.final) == (1, 2, 0, 0)

    run(scenario())


@pytest.mark.parametrize("status", [401, 422])
def test_other_refusals_end_it(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        edge = Edge()
        reader = FakeReader(edge)

        def refuse() -> None:
            raise Refused(status, "no", "not like that")

        monkeypatch.setattr(reader, "status", refuse)
        with pytest.raises(Refused, match="not like that"):
            await mirror(FakeClient(edge), reader, FunctionOutput(lambda copies: None))

    run(scenario())


def test_a_broker_that_refuses_the_filter() -> None:
    async def scenario() -> None:
        edge = Edge()
        with pytest.raises(MirrorError, match="refused to subscribe us to a/b"):
            wishes = Wishes(("a/b",))
            await mirror(FakeClient(edge, 0x87), FakeReader(edge), FunctionOutput(lambda copies: None), wishes)

    run(scenario())


def test_broker_and_rest_must_be_of_one_node() -> None:
    async def scenario() -> None:
        with pytest.raises(MirrorError, match="the broker is of store other, REST of s1"):
            async with Mirrored(Edge()) as mirrored:
                mirrored.client.deliver("a", b"", "other:1")
                await mirrored.until(lambda report: False)

    run(scenario())


def test_messages_without_a_position_are_counted_and_left_out() -> None:
    async def scenario() -> None:
        edge = Edge()
        mirrored = Mirrored(edge)
        async with mirrored:
            mirrored.client.deliver("a", b"", None)
            await mirrored.until(lambda report: report.unplaced == 1)
        assert mirrored.copies == []

    run(scenario())


# ---- from one run to the next ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "filters", "words"), [("s2", ("#",), "is of store s1"), ("s1", ("a/#",), "is of the filters #")]
)
def test_an_output_of_something_else_is_refused(id: str, filters: tuple[str, ...], words: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "out"
        done = Wishes(interval=QUICK, until_complete=True)
        edge = Edge("s1")
        edge.publish("a")
        await mirror(FakeClient(edge), FakeReader(edge), FileOutput(path), done)
        other = Edge(id)
        other.publish("a")
        with pytest.raises(MirrorError, match=words):
            await mirror(FakeClient(other), FakeReader(other), FileOutput(path), Wishes(filters))

    run(scenario())


def test_a_store_that_went_back_is_not_mirrored(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "out"
        done = Wishes(interval=QUICK, until_complete=True)
        for messages in (3, 2):  # of the same store, restored from a backup
            edge = Edge()
            for _ in range(messages):
                edge.publish("a")
            work = mirror(FakeClient(edge), FakeReader(edge), FileOutput(path), done)
            if messages == 3:
                await work
            else:
                with pytest.raises(MirrorError, match="ends at 2, and the output at 3: the store has gone back"):
                    await work

    run(scenario())


def test_cancelled_it_leaves_a_file_to_go_on_with(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "out"
        edge = Edge()
        news = asyncio.Event()
        first = asyncio.ensure_future(
            mirror(
                FakeClient(edge),
                FakeReader(edge),
                FileOutput(path),
                Wishes(interval=QUICK),
                lambda report: news.set() if report.position == 1 else None,
            )
        )
        await asyncio.sleep(0.01)
        edge.publish("a", b"1")
        await news.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        edge.publish("a", b"2")
        wishes = Wishes(interval=QUICK, until_complete=True)
        report = await mirror(FakeClient(edge), FakeReader(edge), FileOutput(path), wishes)
        lines = path.read_text().splitlines()
        assert [json.loads(line)["position"] for line in lines] == [1, 2]
        assert report.live + report.recovered == 2

    run(scenario())


def test_cancelled_it_waits_for_the_thread_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would write into a file that is closed, or that another mirror has opened."""

    async def scenario() -> None:
        edge = Edge()
        edge.publish("a")
        reading, go_on = threading.Event(), threading.Event()
        reader = FakeReader(edge)
        real = reader.read

        def slow(*args: Any, **named: Any) -> Any:
            reading.set()
            go_on.wait(PATIENCE)
            return real(*args, **named)

        monkeypatch.setattr(reader, "read", slow)
        task = asyncio.ensure_future(mirror(FakeClient(edge), reader, FunctionOutput(lambda copies: None)))
        await asyncio.to_thread(reading.wait, PATIENCE)
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
        assert not task.done()
        go_on.set()
        await asyncio.wait([task])
        assert task.cancelled()

    run(scenario())


def test_it_is_not_complete_while_more_comes() -> None:
    async def scenario() -> None:
        edge = Edge()
        copies: list[Copy] = []

        def one_more(report: Report) -> None:
            if report.made < 5:
                edge.publish("a", lost=report.made % 2 == 0)

        wishes = Wishes(interval=QUICK, until_complete=True)
        report = await mirror(FakeClient(edge), FakeReader(edge), FunctionOutput(copies.extend), wishes, one_more)
        assert report.made == len(copies) == 5

    run(scenario())


def test_it_ends_after_its_seconds_with_all_that_is_there() -> None:
    async def scenario() -> None:
        edge = Edge()
        edge.publish("a")
        copies: list[Copy] = []
        wishes = Wishes(interval=60.0, seconds=0.05)
        work = asyncio.ensure_future(mirror(FakeClient(edge), FakeReader(edge), FunctionOutput(copies.extend), wishes))
        await asyncio.sleep(0.02)
        edge.publish("a", lost=True)
        report = await work
        assert report.position == 2
        assert len(copies) == 2

    run(scenario())


class Life:
    """One mirror after the other, all with the same file."""

    def __init__(self, edge: Edge, path: Path, filters: tuple[str, ...]) -> None:
        self._edge = edge
        self._path = path
        self._filters = filters
        self._start()

    def _start(self) -> None:
        self.client, self.reader = FakeClient(self._edge), FakeReader(self._edge)
        work = mirror(self.client, self.reader, FileOutput(self._path), Wishes(self._filters, interval=0.003))
        self.task = asyncio.ensure_future(work)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled():  # a store that is not there at the start is an error
            assert isinstance(self.task.exception(), Unreachable)

    async def happen(self, what: str, number: int) -> None:
        if what in ("publish", "lose", "twice"):
            times = 2 if what == "twice" else 1
            self._edge.publish(f"a/{number}", what.encode(), lost=what == "lose", times=times)
        elif what == "late":  # it comes by MQTT when it may have been fetched already
            position = self._edge.publish(f"a/{number}", b"late", lost=True)
            place = f"{self._edge.store.id}:{position}"
            arguments = (f"a/{number}", b"late", place)
            asyncio.get_running_loop().call_later(0.002 * number, self.client.deliver, *arguments)
        elif what in ("cut", "back"):
            self.client.connected = what == "back"
        elif what in ("down", "up"):
            self.reader.down = what == "down"
        elif what == "pause":
            await asyncio.sleep(0.005 * number)
        else:
            await self.end()
            self._start()


Event = tuple[str, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "lose", "twice", "late", "cut", "back", "down", "up", "pause", "restart"]),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(events=EVENTS, filters=st.sampled_from([("#",), ("a/0",), ("a/+", "a/1")]))
def test_any_history(
    events: Sequence[Event], filters: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever happens, the file has each message of the store once and in order, and the counts add up."""
    path = tmp_path_factory.mktemp("history") / "out"

    async def scenario() -> None:
        edge = Edge()
        life = Life(edge, path, filters)
        for event in events:
            await life.happen(*event)
        await life.end()
        wishes = Wishes(filters, interval=0.003, until_complete=True)
        report = await mirror(FakeClient(edge), FakeReader(edge), FileOutput(path), wishes)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        expected = edge.expected(*filters)
        assert [(row["position"], row["topic"], row["payload"].encode()) for row in rows] == expected
        assert report.live + report.recovered == report.made == len(expected)

    run(scenario())
