"""A shared group on a virtual clock: how late messages become, dispatcher by dispatcher, without waiting for anything.

The dispatchers are the very ones of the broker, behind the very same `Group`; publisher, network and members are
modelled. A member takes its messages one after the other; a message's latency is from its creation until the member
takes it. As a message's service time is known to the simulation when it is dispatched, so are its start and end, and
only what the broker gets to see (acknowledgements, reports) needs events. All is deterministic.

The bound is a clairvoyant dispatcher that knows when each member will really be free, so also how long each message
will take and when a freeze ends. It serves each message as early as can be, which is not quite the least mean: it may
take a slow member for a message that comes just before a fast one is free. Where members are far away that selfishness
costs a lot, so there it is the better of two: the other one counts a way only as much as `adaptive` does.

Fairness is Jain's index (Σu)² / (n·Σu²) of the members' utilisations u, the part of its presence in which a member was
busy: 1 if all are used to the same part of what they can do, 1/n if one does all the work.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from headwater.message import Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.adaptive import TOLL
from headwater.routing.dispatchers.turns import Random
from headwater.routing.shared import Group, dispatcher

EARLY_CHANGE: Final = 2  # a client reports early when its queue has changed by so many messages ...
EARLY_TIMES: Final = 2.0  # or its mean time by this factor (also from none at all) ...
EARLY_GAP: Final = 0.05  # ... but not within so many seconds of its last report


@dataclass(frozen=True)
class Worker:
    """A member. `slow` are spans (from, to, factor) in which messages take longer, `frozen` those of no work at all."""

    service: float
    delay: float = 0.0
    joins: float = 0.0
    leaves: float = float("inf")
    slow: tuple[tuple[float, float, float], ...] = ()
    frozen: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Scenario:
    """`reports`: seconds between them, 0.0 for none. With QoS 1 each message is acknowledged when it is done."""

    name: str
    workers: tuple[Worker, ...]
    period: float
    duration: float
    qos: int = 0
    reports: float = 1.0
    early: bool = True
    phase: float = 0.5  # of the first report, in report intervals; the members' phases are spread from there
    lost: float = 0.0  # part of the reports that never comes
    late: float = 0.0  # seconds by which a report is late at most
    varying: float = 0.0  # sigma of the log-normal factor of a message's service time
    random_arrivals: bool = False
    begins: float = 0.0  # when the publisher does; the members are there before
    way_known: bool = False  # the connections tell their round trips
    samples: float = 0.0  # seconds between looks at what waits to be sent; 0.0 for none
    size: int = 100  # bytes of a message
    buffer: int = 131_072  # bytes that the member's kernel takes before anything waits at the broker


@dataclass
class SimulationOutcome:
    latencies: list[float]
    counts: list[int]
    fairness: float
    reports: int

    @property
    def mean(self) -> float:
        return fmean(self.latencies)

    def quantile(self, part: float) -> float:
        return sorted(self.latencies)[int(part * (len(self.latencies) - 1))]


class Site:
    """A worker at work: what is true of it, as opposed to what the broker believes."""

    def __init__(self, number: int, worker: Worker) -> None:
        self.number = number
        self.worker = worker
        self.free_at = 0.0
        self.starts: deque[float] = deque()  # of messages not yet taken when last looked
        self.done: deque[tuple[float, float]] = deque()  # end and duration, of messages not yet reported
        self.arrivals: deque[float] = deque()
        self.busy = 0.0
        self.count = 0
        self.reported_at = float("-inf")
        self.reported_waiting = 0
        self.reported_seconds = 0.0

    def starts_at(self, now: float) -> float:
        return self.thaws_at(max(now + self.worker.delay, self.free_at))

    def take(self, now: float, factor: float) -> tuple[float, float]:
        """Start and end of a message that is dispatched now."""
        start = self.starts_at(now)
        service = self.worker.service * factor
        for begin, end, times in self.worker.slow:
            if begin <= start < end:
                service *= times
        finish = start + service
        for begin, end in self.worker.frozen:
            if start < begin < finish:
                finish += end - begin
        self.free_at = finish
        self.starts.append(start)
        self.arrivals.append(now + self.worker.delay)
        self.done.append((finish, finish - start))
        self.busy += service
        self.count += 1
        return start, finish

    def thaws_at(self, at: float) -> float:
        for begin, end in self.worker.frozen:
            if begin <= at < end:
                return end
        return at

    def present(self, until: float) -> float:
        """Seconds in which it is there."""
        return max(0.0, min(self.worker.leaves, until) - self.worker.joins)

    def frozen(self, now: float) -> bool:
        return self.thaws_at(now) > now

    def unsent(self, now: float, size: int, buffer: int) -> int:
        """Bytes that it has not read and that its kernel has no room for: it reads a message when it starts on it."""
        self.waiting(now)
        return max(0, len(self.starts) * size - buffer)

    def waiting(self, now: float) -> int:
        while self.starts and self.starts[0] <= now:
            self.starts.popleft()
            self.arrivals.popleft()
        count = 0
        for arrival in self.arrivals:
            if arrival > now:
                break
            count += 1
        return count

    def seconds(self, now: float) -> float:
        """Mean time of those done since the last report; 0.0: none was."""
        total = 0.0
        count = 0
        for finish, duration in self.done:
            if finish > now:
                break
            total += duration
            count += 1
        return total / count if count else 0.0

    def report(self, now: float) -> tuple[int, float | None]:
        seconds = self.seconds(now)
        while self.done and self.done[0][0] <= now:
            self.done.popleft()
        self.reported_at = now
        self.reported_waiting = self.waiting(now)
        if seconds > 0.0:
            self.reported_seconds = seconds
        return self.reported_waiting, seconds if seconds > 0.0 else None


class Clairvoyant(Dispatcher):
    """The member that really can start first, whoever has been free for longest among several: the bound."""

    MANY: Final = 50

    def __init__(self, toll: float = 1.0) -> None:
        self.toll = toll  # the part of a way that counts
        self.sites: dict[Member, Site] = {}
        self._members: list[Member] = []
        self._queue: list[tuple[float, int]] = []

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        if len(members) > self.MANY:
            return self._of_many(members)
        return min(members, key=lambda member: self._cost(self.sites[member], now))

    def _cost(self, site: Site, now: float) -> tuple[float, float]:
        return site.starts_at(now) - (1.0 - self.toll) * site.worker.delay, site.free_at

    def _of_many(self, members: list[Member]) -> Member:
        """In large groups nobody is far away or freezes, so who is free first starts first."""
        if members is not self._members:
            self._members = members
            self._queue = [(self.sites[member].free_at, place) for place, member in enumerate(members)]
            heapq.heapify(self._queue)
        while True:
            free_at, place = self._queue[0]
            now_free_at = self.sites[members[place]].free_at
            if now_free_at == free_at:
                return members[place]
            heapq.heapreplace(self._queue, (now_free_at, place))


Event = tuple[float, int, Callable[[float], None]]


@dataclass
class Run:
    """One scenario with one dispatcher."""

    scenario: Scenario
    chooser: Dispatcher
    seed: int = 1
    group: Group = field(init=False)

    def __post_init__(self) -> None:
        self.group = Group("simulated", "t", self.chooser)
        self.sites = [Site(number, worker) for number, worker in enumerate(self.scenario.workers)]
        self.members: dict[int, Member] = {}
        self.events: list[Event] = []
        self.order = 0
        self.latencies: list[float] = []
        self.reports = 0
        self.chance = random.Random(self.seed)
        self.report_chance = random.Random(self.seed + 1)  # of its own: all dispatchers get the same messages

    def outcome(self) -> SimulationOutcome:
        scenario = self.scenario
        for site in self.sites:
            self._at(site.worker.joins, lambda now, site=site: self._join(site))  # type: ignore[misc]
            if site.worker.leaves < scenario.duration:
                self._at(site.worker.leaves, lambda now, site=site: self._leave(site))  # type: ignore[misc]
            if scenario.reports:
                spread = (scenario.phase + site.number / len(self.sites)) % 1.0
                self._at(site.worker.joins + spread * scenario.reports, self._timer(site))
        if scenario.samples:
            self._at(scenario.samples, self._sample_all)
        at = scenario.begins
        count = 0
        while at < scenario.duration:
            self._until(at)
            self._publish(at)
            count += 1
            gap = self.chance.expovariate(1.0) if scenario.random_arrivals else 1.0
            at = at + gap * scenario.period if scenario.random_arrivals else scenario.begins + count * scenario.period
        used = [site.busy / site.present(at) for site in self.sites if site.present(at) > 0.0]
        return SimulationOutcome(self.latencies, [site.count for site in self.sites], jain(used), self.reports)

    def _at(self, time: float, what: Callable[[float], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what))

    def _until(self, now: float) -> None:
        while self.events and self.events[0][0] <= now:
            time, _, what = heapq.heappop(self.events)
            what(time)

    def _publish(self, now: float) -> None:
        member = self.group.choose_online("t", "publisher", now)
        assert member is not None, "nobody is there"
        site = self._site(member)
        factor = 1.0
        if self.scenario.varying:
            sigma = self.scenario.varying
            factor = self.chance.lognormvariate(-sigma * sigma / 2.0, sigma)
        start, finish = site.take(now, factor)
        self.latencies.append(start - now)
        self.group.sent(member, self.scenario.size, self.scenario.qos, now)
        if self.scenario.qos:
            self._at(finish + site.worker.delay, lambda now: self._acknowledge(member, now))
        if self.scenario.reports and self.scenario.early:
            for time in (now + site.worker.delay, start, finish):
                self._at(time, lambda now: self._perhaps_early(site, now))

    def _site(self, member: Member) -> Site:
        assert isinstance(member.key, int)
        return self.sites[member.key]

    def _join(self, site: Site) -> None:
        member = self.group.join(site.number, Subscription("t", self.scenario.qos, share="simulated"))
        member.way = site.worker.delay if self.scenario.way_known else 0.0
        member.report_interval = self.scenario.reports
        self.members[site.number] = member
        if isinstance(self.chooser, Clairvoyant):
            self.chooser.sites[member] = site

    def _leave(self, site: Site) -> None:
        """It does what it was given, and gets no more."""
        self.group.leave(site.number)
        del self.members[site.number]

    def _acknowledge(self, member: Member, now: float) -> None:
        if member.key in self.members:
            self.group.acknowledged(member, now)

    def _sample_all(self, now: float) -> None:
        for number, member in self.members.items():
            unsent = self.sites[number].unsent(now, self.scenario.size, self.scenario.buffer)
            self.group.sampled(member, unsent, now)
        self._at(now + self.scenario.samples, self._sample_all)

    # ---- reports ---------------------------------------------------------------------------------------------

    def _timer(self, site: Site) -> Callable[[float], None]:
        def due(now: float) -> None:
            if site.frozen(now):
                self._at(site.thaws_at(now), due)
            elif site.number in self.members:
                self._report(site, now)
                self._at(now + self.scenario.reports, due)

        return due

    def _perhaps_early(self, site: Site, now: float) -> None:
        if site.number not in self.members or now - site.reported_at < EARLY_GAP or site.frozen(now):
            return
        seconds = site.seconds(now)
        known = site.reported_seconds
        news = seconds > 0.0 and not known / EARLY_TIMES < seconds < known * EARLY_TIMES
        if news or abs(site.waiting(now) - site.reported_waiting) >= EARLY_CHANGE:
            self._report(site, now)

    def _report(self, site: Site, now: float) -> None:
        waiting, seconds = site.report(now)
        self.reports += 1
        if self.report_chance.random() < self.scenario.lost:
            return
        arrives = now + site.worker.delay + self.report_chance.random() * self.scenario.late
        self._at(arrives, lambda now: self._hear(site, waiting, seconds, now))

    def _hear(self, site: Site, waiting: int, seconds: float | None, now: float) -> None:
        member = self.members.get(site.number)
        if member is not None:
            self.group.reported(member, waiting, seconds, now)


def jain(values: list[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1/n if one has all."""
    squares = sum(each * each for each in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def simulate(scenario: Scenario, name: str, seed: int = 1) -> SimulationOutcome:
    """One run; `name` is a dispatcher's, or `bound`."""
    if name == "bound":
        tolls = (1.0, TOLL) if any(worker.delay for worker in scenario.workers) else (1.0,)
        bounds = [Run(scenario, Clairvoyant(toll), seed).outcome() for toll in tolls]
        return min(bounds, key=lambda outcome: outcome.mean)
    chooser = Random(seed) if name == "random" else dispatcher(name)
    return Run(scenario, chooser, seed).outcome()
