"""Whose password is computed when, and by whom."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from headwater.node.access import verifying as module
from headwater.node.access.verifying import Helpers, Overloaded, Place, Row, Standing, Verifying, Waiter
from tests.node.access.arriving import quick_hash

MEMORY = 64 << 20
"""Of a password with what we write."""
PAGE = os.sysconf("SC_PAGE_SIZE")
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class Queue:
    """One thing at a time; `done` is who had its turn, in order, and `refused` who did not get one."""

    def __init__(self, limit: int = 1000) -> None:
        self.verifying = Verifying(1, limit)
        self.hold = threading.Event()
        self.done: list[str] = []
        self.refused: list[str] = []
        self.gone: set[str] = set()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, network: str, times: int = 1, trusted: bool = True) -> None:
        for number in range(times):
            name = network if times == 1 else f"{network}{number}"
            self.tasks.append(asyncio.create_task(self._come(name, network, trusted)))
        await asyncio.sleep(0)

    async def _come(self, name: str, network: str, trusted: bool) -> None:
        answer = self.verifying.run(self.hold.wait, Waiter(network, trusted, lambda: name in self.gone), was_computed)
        (self.done if answer is True or (answer and await answer) else self.refused).append(name)

    async def end(self) -> None:
        self.hold.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.verifying.under_way == 0
        self.verifying.stop()


def was_computed(computed: Callable[[], bool]) -> bool:
    try:
        return computed()
    except Overloaded:
        return False


def lined_up(scene: Callable[[Queue], object], limit: int = 1000) -> Queue:
    queue = Queue(limit)

    async def main() -> None:
        await scene(queue)  # type: ignore[misc]
        await queue.end()

    asyncio.run(main())
    return queue


def test_a_first_login_waits_for_one_of_each_other_address() -> None:
    async def scene(queue: Queue) -> None:
        for network in "abc":
            await queue.come(network, 50)
        await queue.come("new")

    done = lined_up(scene).done
    assert done.index("new") <= 1 + 3 and len(done) == 151


def test_who_has_not_failed_comes_first_and_the_others_come_too() -> None:
    async def scene(queue: Queue) -> None:
        await queue.come("x")
        await queue.come("bad", 10, trusted=False)
        await queue.come("good", 6)

    done = lined_up(scene).done
    assert done[1:9] == ["good0", "good1", "good2", "bad0", "good3", "good4", "good5", "bad1"]


def test_when_all_places_are_taken_who_has_most_loses_one() -> None:
    async def scene(queue: Queue) -> None:
        await queue.come("crowd", 10)
        await queue.come("new")

    queue = lined_up(scene, limit=5)
    assert queue.done == ["crowd0", "crowd1", "new", "crowd2", "crowd3"]
    assert sorted(queue.refused) == [f"crowd{number}" for number in range(4, 10)]


def test_of_two_as_long_the_second_row_loses_one() -> None:
    async def scene(queue: Queue) -> None:
        await queue.come("x")
        await queue.come("good", 2)
        await queue.come("bad", 2, trusted=False)
        await queue.come("new")

    queue = lined_up(scene, limit=5)
    assert queue.refused == ["bad1"]


def test_nothing_is_computed_for_who_has_hung_up() -> None:
    async def scene(queue: Queue) -> None:
        await queue.come("a", 4)
        queue.gone |= {"a1", "a2"}

    queue = lined_up(scene)
    assert queue.done == ["a0", "a3"] and queue.refused == ["a1", "a2"]


def test_who_leaves_is_not_waited_for() -> None:
    async def scene(queue: Queue) -> None:
        await queue.come("a", 3)
        await queue.come("b")
        queue.tasks[1].cancel()
        queue.tasks[0].cancel()  # its thread is at work, and keeps its place until it is done
        await asyncio.sleep(0)
        assert queue.verifying.under_way == 3

    queue = lined_up(scene)
    assert queue.done == ["a2", "b"]


def test_who_leaves_when_its_turn_has_come_passes_it_on() -> None:
    async def main() -> None:
        queue = Queue()
        await queue.come("a")
        await queue.come("b")
        await queue.come("c")
        place = next(iter(queue.verifying._rows[0].queues["b"]))
        place.waiter = Waiter("b", True, lambda: queue.tasks[1].cancel() and False)
        await queue.end()
        assert queue.done == ["a", "c"]

    asyncio.run(main())


def test_who_waits_costs_nothing_of_the_loop_and_who_is_turned_away_is_told_at_once() -> None:
    """Else a flood of logins would make all others wait for tasks that do nothing but wait."""

    async def main() -> None:
        queue = Queue(limit=100)
        loop = asyncio.get_running_loop()
        work, crowd = queue.hold.wait, Waiter("crowd")
        answers = [queue.verifying.run(work, crowd, was_computed) for _ in range(100)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_soon", None)
            patch.setattr(loop, "create_task", None)
            assert queue.verifying.run(work, crowd, was_computed) is False, "the newest of the only address"
        newcomer = queue.verifying.run(work, Waiter("new"), was_computed)
        queue.hold.set()
        waiting = [answer for answer in (*answers, newcomer) if isinstance(answer, asyncio.Future)]
        assert [await answer for answer in waiting] == [True] * 99 + [False, True]
        await queue.end()

    asyncio.run(main())


def test_when_a_crowd_has_hung_up_others_have_their_turn_between_any_two() -> None:
    async def main() -> None:
        queue = Queue()
        await queue.come("first")
        await queue.come("crowd", 50)
        queue.gone |= {f"crowd{number}" for number in range(50)}
        await queue.come("last")
        looks: list[int] = []
        loop = asyncio.get_running_loop()

        def look() -> None:
            looks.append(queue.verifying.under_way)
            if looks[-1]:
                loop.call_soon(look)

        loop.call_soon(look)
        await queue.end()
        assert all(before - now <= 2 for before, now in itertools.pairwise(looks)), looks
        assert queue.done == ["first", "last"] and len(queue.refused) == 50

    asyncio.run(main())


def test_the_longest_line_is_known_whatever_comes_and_goes() -> None:
    async def main() -> None:
        chance, row = random.Random(7), Row()
        places: list[tuple[str, Place]] = []
        for _ in range(3000):
            what = chance.random()
            if what < 0.5 or not places:
                network = chance.choice("abcdef")
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                places.append((network, Place(list, Waiter(network), was_computed, answer)))
                row.add(*places[-1])
            elif what < 0.7:
                network, place = places.pop(chance.randrange(len(places)))
                assert row.remove(network, place) and not row.remove(network, place)
            else:
                gone = row.next() if what < 0.9 else row.shorten()
                places = [each for each in places if each[1] is not gone]
            assert row.longest == max(map(len, row.queues.values()), default=0)
            assert sum(map(len, row.queues.values())) == len(places)

    asyncio.run(main())


def test_standing() -> None:
    standing = Standing(60.0)
    assert standing.is_trusted("n", "u", 0.0)
    standing.failed("n", 0.0)
    assert not standing.is_trusted("n", "u", 59.0) and standing.is_trusted("n", "u", 60.0)
    standing.succeeded("n", "u")
    assert standing.is_trusted("n", "u", 1.0) and not standing.is_trusted("n", "other", 1.0)


def test_what_is_remembered_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 2)
    standing = Standing(60.0)
    for network in "abc":
        standing.failed(network, 0.0)
        standing.succeeded(network, "u")
    assert len(standing._failed) == len(standing._succeeded) == 2
    assert standing.is_trusted("a", "other", 1.0), "the oldest is forgotten"


def test_by_default_one_core_is_left_to_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 1), (2, 1), (3, 2), (64, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        verifying = Verifying(0, 1000)
        assert verifying.threads == threads
        verifying.use(5, 1000)
        assert verifying.threads == 5
        verifying.use(0, 1000)
        assert verifying.threads == threads


# ---- processes ---------------------------------------------------------------------------------------------------


def test_another_process_computes_and_gives_way() -> None:
    helpers = Helpers()
    encoded = QUICK.hash("right")
    assert helpers.verify(encoded, b"right") and not helpers.verify(encoded, b"wrong")
    (helper,) = helpers._idle
    assert os.getpriority(os.PRIO_PROCESS, helper.pid) == 19
    assert os.sched_getscheduler(helper.pid) == os.SCHED_BATCH
    helpers.stop()
    assert helper.poll() is not None and not helpers._idle


def test_a_process_that_ended_is_started_anew() -> None:
    helpers = Helpers()
    encoded = QUICK.hash("right")
    assert helpers.verify(encoded, b"right")
    (helper,) = helpers._idle
    os.kill(helper.pid, signal.SIGKILL)
    helper.wait()
    assert helpers.verify(encoded, b"right")
    assert [each.pid for each in helpers._idle] != [helper.pid]
    helpers.stop()


def test_a_process_ends_with_its_broker() -> None:
    helpers = Helpers()
    assert helpers.verify(QUICK.hash("right"), b"right")
    (helper,) = helpers._idle
    assert helper.stdin is not None
    helper.stdin.close()
    assert helper.wait(20) == 0
    helpers.stop()


def test_without_processes_the_broker_computes_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    helpers = Helpers()
    encoded = QUICK.hash("right")
    assert helpers.verify(encoded, b"right") and not helpers.verify(encoded, b"wrong")
    assert caplog.text.count("no process for it") == 1


def test_hashes_that_cost_nothing_need_no_process() -> None:
    async def main() -> None:
        verifying = Verifying(1, 10)
        for encoded, processes in ((quick_hash("x"), 0), (QUICK.hash("x"), 1)):
            answer = verifying.password(encoded, b"x", Waiter("n"), was_computed)
            assert isinstance(answer, asyncio.Future) and await answer
            assert len(verifying._helpers._idle) == processes
        verifying.stop()

    asyncio.run(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_password_is_computed_by_one_thread_in_memory_that_is_kept() -> None:
    """So that it is hardly ever in the kernel, which others would have to wait for."""
    helpers = Helpers()
    encoded = PasswordHasher().hash("right")
    assert helpers.verify(encoded, b"right")
    (helper,) = helpers._idle
    process = Path(f"/proc/{helper.pid}")
    before = _faults(process)
    threads: set[int] = set()
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            threads.add(len(os.listdir(process / "task")))

    counting = threading.Thread(target=count)
    counting.start()
    assert not helpers.verify(encoded, b"wrong")
    done.set()
    counting.join()
    assert threads == {1}
    assert _faults(process) - before < MEMORY // PAGE // 10
    deadline = time.monotonic() + 60
    while _resident(process) > MEMORY:  # nobody asks any more: it goes back to the system
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert helpers.verify(encoded, b"right")
    assert list(helpers._idle) == [helper]
    helpers.stop()


def _faults(process: Path) -> int:
    """Minor page faults so far."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[7])


def _resident(process: Path) -> int:
    return int((process / "statm").read_text().split()[1]) * PAGE
