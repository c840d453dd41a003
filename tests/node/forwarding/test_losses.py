"""Lines that are cut at any byte, or swallow what is sent: nothing is missing, and with QoS 2 nothing comes twice."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.scripted import run
from tests.client.test_cuts import Cuts, Cutter, cuts
from tests.node.forwarding.scene import disk, forward, node, payloads, publish, sources, until, until_done, view

MESSAGES = 60


@settings(max_examples=20, deadline=None)
@given(cut_at=cuts, protocol=st.sampled_from(["5.0", "3.1.1"]), qos=st.sampled_from([1, 2]), window=st.integers(1, 12))
def test_a_line_that_is_cut_at_any_byte(cut_at: Cuts, protocol: str, qos: int, window: int) -> None:
    """Also while the node that forwards is restarted."""

    async def scenario(folder: Path) -> None:
        near_disk, far_disk = disk(folder, "near"), disk(folder, "far")
        async with node(far_disk) as far, Cutter(far.port, cut_at) as way:
            wanted = forward(way.port, protocol=protocol, qos=qos, max_inflight=window)
            async with node(near_disk, wanted) as near:
                await publish(near, *range(MESSAGES // 2))
            async with node(near_disk, wanted) as near:
                await publish(near, *range(MESSAGES // 2, MESSAGES))
                await until_done(near)
            found = payloads(far_disk.store)
            assert {int(each) for each in found} == set(range(MESSAGES))
            if qos == 2:
                assert len(found) == MESSAGES

    with tempfile.TemporaryDirectory() as folder:
        run(scenario(Path(folder)))


class Hole:
    """A way to a broker that can become a hole: connections stay, and nothing comes through them any more."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_hole = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallowed = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self) -> None:
        """New connections come through; what was swallowed stays so."""
        self._is_hole = False

    def close(self) -> None:
        self._is_hole = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        is_dead = asyncio.Event()
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(self._carry(reader, back, is_dead), self._carry(there, writer, is_dead))
        except ConnectionError:
            pass
        finally:
            back.transport.abort()
            writer.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_dead: asyncio.Event) -> None:
        while data := await source.read(65536):
            if self._is_hole:
                is_dead.set()
            if is_dead.is_set():
                self.swallowed += len(data)
            else:
                target.write(data)
        if not is_dead.is_set():
            raise ConnectionResetError


@pytest.mark.parametrize("qos", [1, 2])
def test_between_a_dead_link_and_its_detection_nothing_is_lost(tmp_path: Path, qos: int) -> None:
    near_disk, far_disk = disk(tmp_path, "near"), disk(tmp_path, "far")

    async def scenario() -> None:
        async with node(far_disk) as far, Hole(far.port) as way:
            async with node(near_disk, forward(way.port, qos=qos, keep_alive=1)) as near:
                await publish(near, *range(20))
                await until_done(near)
                way.close()
                for number in range(20, 60):
                    await publish(near, number)
                assert way.swallowed > 0
                assert view(near).up  # nobody has noticed
                assert view(near).under_way > 0
                way.open()
                await until(lambda: view(near).sent_again > 0)  # the ping was not answered
                await publish(near, *range(60, 80))
                await until_done(near)
            found = payloads(far_disk.store)
            assert {int(each) for each in found} == set(range(80))
            if qos == 2:
                assert len(found) == 80
                assert len(set(sources(far_disk.store))) == 80

    run(scenario())


def test_answers_that_are_swallowed_make_no_copies(tmp_path: Path) -> None:
    """The remote has the messages, and we do not know; it is asked again under the same ids, after a restart, too."""
    near_disk, far_disk = disk(tmp_path, "near"), disk(tmp_path, "far")

    class Deaf(Hole):
        """What comes back is swallowed."""

        async def _carry(
            self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_dead: asyncio.Event
        ) -> None:
            is_back = target.get_extra_info("sockname")[1] == self.port
            while data := await source.read(65536):
                if is_back and self._is_hole:
                    self.swallowed += len(data)
                else:
                    target.write(data)
            raise ConnectionResetError

    async def scenario() -> None:
        async with node(far_disk) as far, Deaf(far.port) as way:
            wanted = forward(way.port, qos=2, keep_alive=30)
            async with node(near_disk, wanted) as near:
                await publish(near, "first")
                await until_done(near)
                way.close()
                await publish(near, *range(50))
                await until(lambda: len(payloads(far_disk.store)) == 51)
                assert view(near).forwarded == 1
            way.open()
            async with node(near_disk, wanted) as near:
                await until_done(near)
                assert view(near).sent_again == 50
                assert view(near).under_way == 0
            assert sorted(payloads(far_disk.store)) == sorted(["first", *map(str, range(50))])

    run(scenario())


def test_a_remote_that_has_lost_the_session_may_get_copies_and_nothing_is_missing(tmp_path: Path) -> None:
    near_disk, far_disk = disk(tmp_path, "near"), disk(tmp_path, "far")

    async def scenario() -> None:
        async with node(far_disk) as far, Cutter(far.port, [(900, 900)] * 4) as way:
            async with node(near_disk, forward(way.port, qos=2, session_expiry=0)) as near:
                await publish(near, *range(MESSAGES))
                await until_done(near)
            assert {int(each) for each in payloads(far_disk.store)} == set(range(MESSAGES))
            assert len(set(sources(far_disk.store))) == MESSAGES

    run(scenario())
