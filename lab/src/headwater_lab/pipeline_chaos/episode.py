"""One lake and its nodes: kills, one after the other, up to the last drain and the verdict."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater.fleet.node import RunningNode
from headwater.fleet.process import free_port
from headwater_lab.kill_campaign import EpisodeOutcome
from headwater_lab.pipeline_chaos import aims as ways
from headwater_lab.pipeline_chaos.aims import Aims
from headwater_lab.pipeline_chaos.examining import read_stores
from headwater_lab.pipeline_chaos.lives import PATIENCE, Life, Stuck, descendants, is_alive, kill
from headwater_lab.pipeline_chaos.orders import Orders
from headwater_lab.pipeline_chaos.publishing import Publishers
from headwater_lab.pipeline_chaos.settings import settings_for
from headwater_lab.pipeline_chaos.storage import FOLDER, Storage
from headwater_lab.spark_cluster import Cluster, cluster

RATE: Final = 15.0
"""Messages a second to each node."""
LOOK: Final = 0.05
REACHED_WITHIN: Final = 60.0
"""Seconds in which a place has to be reached, else it has its turn again later."""
LONGEST: Final = 1.5
"""Seconds of peace before a kill at a random moment."""
ASLEEP_FOR: Final = 2
"""Rounds with progress of the next driver, before one that was held goes on."""
MOST_STARTS: Final = 8
"""Of drivers that end one after the other without a round."""
PEACE: Final = 4
"""Kills between two that nobody can wait for: after a start, tables by the minute are always due."""
LOCAL: Final = "local[2]"
NEVER: Final = 1 << 30
COMMIT_OF_BRONZE: Final = "pipeline-before-commit/bronze"


class Episode:
    """On Spark in the driver's Java, or on a cluster."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        aims: Aims,
        *,
        nodes: int = 2,
        sink: str = "honest",
        on_cluster: bool = False,
        lake: str = FOLDER,
        iceberg: bool = False,
    ) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.aims = aims
        self.sink = sink
        self.orders = Orders(folder)
        self._resources = contextlib.ExitStack()
        self._on_cluster = on_cluster
        self._iceberg = iceberg
        self.cluster: Cluster | None = None
        self.outcome = EpisodeOutcome(seed)
        self.ports = [(free_port(), free_port()) for _ in range(nodes)]
        self.nodes = [self._node(index) for index in range(nodes)]
        self.urls = [node.url for node in self.nodes]
        self.storage = Storage(lake, folder)
        self.publishers = Publishers([port for port, _ in self.ports], seed, RATE)
        self.left: dict[int, float] = {}
        """Processes of drivers that have gone, and since when."""
        self.life: Life | None = None
        self._rows = 0
        """Of bronze, as far as it is known."""
        self._drivers: set[int] = set()
        self._hopeless = 0
        self._peace_until = NEVER
        """So many kills, and another that nobody can wait for is ordered."""
        self._held_place = ""
        """Who gets there is held."""
        self._held = 0

    def _node(self, index: int) -> RunningNode:
        home = self.folder / f"node-{index}"
        home.mkdir(exist_ok=True)
        port, rest_port = self.ports[index]
        return RunningNode(home, port=port, rest_port=rest_port, log_level="warning")

    def run(self, kills: int) -> EpisodeOutcome:
        try:
            if self._on_cluster:
                made = cluster(self.folder / "cluster", Path(sys.executable), environment=self.orders.environment)
                self.cluster = self._resources.enter_context(made)
            self.publishers.start()
            self.orders.give(*self.aims.first(self.random))
            self._start()
            while self.outcome.kills.total() < kills:
                self._await_progress()
                self._one(self.aims.next(self.random))
            self._finish()
        except (Stuck, Hopeless) as error:
            self.outcome.wrong.append(f"stuck: {error}; {self._last_words()}")
        finally:
            self._close()
        return self.outcome

    # ---- drivers -----------------------------------------------------------------------------------------------

    def _start(self) -> Life:
        master = LOCAL if self.cluster is None else self.cluster.url
        self.life = Life(self.folder, self.storage, self.urls, master, self.sink, self.orders, iceberg=self._iceberg)
        self._drivers.add(self.life.pid)
        self.outcome.counts["drivers"] += 1
        return self.life

    def _tend(self, seconds: float = LOOK) -> Life:
        """What a supervisor does: a driver that has ended is started again. The one that lives."""
        life = self.life or self._start()
        if life.is_over() and life.last_words() is None:
            self._hopeless = 0 if life.rounds else self._hopeless + 1
            if self._hopeless >= MOST_STARTS:
                raise Hopeless(f"{MOST_STARTS} drivers ended one after the other (the last with {life.code})")
            self._bury(life)
            life = self._start()
        life.listen(seconds)
        self._rows = max(self._rows, life.rows)
        self._count_struck()
        self._look_after_the_left()
        return life

    def _bury(self, life: Life) -> None:
        self.outcome.counts["pipelines that failed and were started again"] += len(life.failures)
        now = time.monotonic()
        self.left |= {pid: now for pid in (*self._of_executors(), *life.end()) if pid != self._held}
        self.life = None

    def _await_progress(self) -> None:
        """A round after which bronze has more than before: everything is well."""
        began = time.monotonic()
        rows = self._rows
        if not self._until(lambda: self._rows > rows, PATIENCE):
            raise Stuck(f"bronze has {rows} rows, and has got no more for {PATIENCE:g} s")
        self.outcome.waited("recovery", time.monotonic() - began)

    def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > until:
                return False
            self._tend()
        return True

    def _look_after_the_left(self) -> None:
        now = time.monotonic()
        for pid, since in list(self.left.items()):
            if is_alive(pid):
                self.outcome.waited("afterlife", now - since)
            else:
                del self.left[pid]

    def _executors(self) -> list[int]:
        """Of the cluster; those of the driver's Java are in it."""
        return [] if self.cluster is None else list(self.cluster.running_executors())

    def _of_executors(self) -> list[int]:
        """Themselves, and their Pythons."""
        return [pid for executor in self._executors() for pid in (executor, *descendants(executor))]

    # ---- kills -------------------------------------------------------------------------------------------------

    def _one(self, aim: str) -> None:
        if self.outcome.kills.total() >= self._peace_until:
            self._peace_until = NEVER
            self.orders.give(*self.aims.beside(self.random))
        if aim in (*ways.RANDOM, *ways.OF_THE_STORE, ways.EXECUTOR):
            self._until(lambda: False, self.random.uniform(0, LONGEST))
        if aim in (ways.ASLEEP, ways.LEFT):
            self._hold_one(COMMIT_OF_BRONZE, aim)
        elif aim.startswith(ways.EXECUTOR_WHILE):
            self._hold_one(aim.removeprefix(ways.EXECUTOR_WHILE), aim)
        elif aim == ways.NODE:
            self._kill_node()
        elif aim in ways.OF_THE_STORE:
            self._kill_store(aim)
        elif aim in (*ways.RANDOM, ways.EXECUTOR):
            self._kill(aim)
        else:
            self._strike(aim)

    def _strike(self, place: str) -> None:
        """At a crash point; or not, if nobody gets there."""
        before = self.outcome.kills.total()
        self.orders.give(self.aims.order(place, self.random))
        if not self._until(lambda: self.outcome.kills.total() > before, REACHED_WITHIN):
            self._withdraw(place)
            self.aims.missed(place)

    def _withdraw(self, place: str) -> None:
        name = place.partition(":")[0]
        self.orders.give(*(order for order in self.orders.withdraw() if order.partition(":")[0] != name))

    def _count_struck(self) -> None:
        for each in self.orders.struck():
            if self._held_place in (each.point, each.place):
                self._held = each.process
                continue
            self.outcome.kills[each.place] += 1
            self.outcome.victims["the driver" if each.process in self._drivers else "a Python of Java"] += 1
            if each.place in ways.SLOW:
                self._peace_until = self.outcome.kills.total() + PEACE

    def _kill(self, aim: str) -> None:
        life = self._tend()
        executors = self._executors()
        workers = [*life.processes(), *(pid for each in executors for pid in descendants(each))]
        if aim == ways.DRIVER:
            kill(life.pid)
        elif aim == ways.EXECUTOR and executors:
            kill(self.random.choice(executors))
        elif aim == ways.JAVA and life.java is not None:
            self.left |= dict.fromkeys(workers, time.monotonic())
            kill(life.java)
        elif aim == ways.WORKER and workers:
            kill(self.random.choice(workers))
        elif aim == ways.ALL and life.java is not None:
            kill(life.pid, life.java, *executors, *workers)
        else:
            return
        self.outcome.kills[aim] += 1

    def _kill_node(self) -> None:
        index = self.random.randrange(len(self.nodes))
        kill(*self.nodes[index].pids())
        self.nodes[index].stop()
        self._until(lambda: False, self.random.choice((0.0, 0.5, 3.0)))
        self.nodes[index] = self._node(index)
        self.outcome.kills[ways.NODE] += 1

    def _kill_store(self, aim: str) -> None:
        store = self.storage.store
        if store is None:
            return
        life = self._tend()
        store.kill()
        if aim == ways.STORE_TOO:
            kill(life.pid)
        until = time.monotonic() + self.random.choice((0.0, 0.5, 3.0))
        self._until(lambda: time.monotonic() >= until, PATIENCE)
        store.start_again()
        self.outcome.kills[aim] += 1

    def _hold_one(self, place: str, aim: str) -> None:
        """The first that gets there is held while others die."""
        others = self.orders.withdraw()
        self._held_place, self._held = place, 0
        self.orders.hold(place)
        self._until(lambda: bool(self._held), REACHED_WITHIN)
        self.orders.withdraw()
        self.orders.give(*others)
        self._held_place = ""
        if not self._held:
            self.aims.missed(aim)
        elif aim in (ways.ASLEEP, ways.LEFT):
            self._leave_it_alone(self._held, aim)
        else:
            self._take_its_executor(self._held, aim)

    def _take_its_executor(self, process: int, aim: str) -> None:
        """If it has one, that is killed, and the process goes on when others have done its task, if it is still there:
        its daemon takes it with it, if it can. If it is one of the driver's, any executor is killed."""
        executors = self._executors()
        its_own = next((each for each in executors if process in descendants(each)), None)
        if its_own is not None:
            kill(its_own)
            self.outcome.counts["executors of those that were held"] += 1
            self._await_progress()
        elif executors:
            kill(self.random.choice(executors))
        self.outcome.kills[aim] += bool(executors)
        self._let_go(process)

    def _let_go(self, process: int) -> None:
        self.outcome.counts["were held, and went on"] += is_alive(process)
        self.orders.go_on()
        self.left[process] = time.monotonic()
        self._held = 0

    def _leave_it_alone(self, process: int, aim: str) -> None:
        """Its driver is killed, and all others that belong to it are, or Java ends by itself. When the next driver has
        done some rounds, and surely this batch, it goes on, if it is still there: Java takes its Pythons with it, if
        it can."""
        life = self._tend()
        family = (life.java or 0, *life.processes(), *self._of_executors()) if aim == ways.ASLEEP else ()
        kill(life.pid, *(pid for pid in family if pid not in (0, process)))
        self.outcome.kills[aim] += 1
        for _ in range(ASLEEP_FOR):
            self._await_progress()
        self._let_go(process)

    # ---- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.orders.withdraw()
        self._await_progress()
        self.publishers.stop()
        if self.publishers.failure:
            self.outcome.wrong.append(f"not stored: {self.publishers.failure}")
        found = self._drained()
        self.outcome.wrong += found["wrong"]
        self.outcome.counts += Counter({f"rows of {name}": rows for name, rows in found["rows"].items()})
        self._look_for_acknowledged()

    def _drained(self) -> dict[str, Any]:
        """What a driver finds that has come to its end."""
        asked: Life | None = None
        while True:
            life = self._tend()
            if life.found is not None:
                return life.found
            if life is not asked:
                life.drain()
                asked = life

    def _look_for_acknowledged(self) -> None:
        for url, acknowledged in zip(self.urls, self.publishers.acknowledged, strict=True):
            stored = Counter((row[1], row[2]) for row in read_stores(settings_for([url])).values())
            missing = acknowledged - stored
            self.outcome.counts["acknowledged"] += acknowledged.total()
            if missing:
                self.outcome.wrong.append(f"not stored: {missing.total()} acknowledged messages are not at {url}")

    def _last_words(self) -> str:
        log = self.folder / "driver.log"
        return f"the log ends with: {log.read_text(errors='replace')[-1500:]}" if log.exists() else "it said nothing"

    def _close(self) -> None:
        self.publishers.stop()
        self.left |= dict.fromkeys(self._of_executors(), time.monotonic())
        if self.life is not None:
            self.left |= dict.fromkeys(self.life.end(), time.monotonic())
        kill(*(pid for pid in (*self.left, self._held) if pid and is_alive(pid)))
        for node in self.nodes:
            node.stop()
        self.storage.close()
        self._resources.close()


class Hopeless(Exception):
    """Drivers end again and again."""
