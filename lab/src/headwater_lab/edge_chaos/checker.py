"""What must not be in an edge, beyond what must not be in a cluster (__init__.py has the rules)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from headwater.edge.status import EdgeStatus, Stretch, stretches_of
from headwater_lab.chaos.checker import Violation
from headwater_lab.chaos.history import Acknowledged, Disconnected, History, Note, Sent
from headwater_lab.cluster_chaos.world import home, stays
from headwater_lab.edge_chaos.pauses import calm_times
from headwater_lab.edge_chaos.population import Arrived, Ended
from headwater_lab.edge_chaos.stores import StoredRow

NOT_STORED: Final = "not stored"
TWICE: Final = "stored twice"
DISORDER: Final = "out of order"
UNREADABLE: Final = "unreadable"
RECONNECTS: Final = "device reconnects"
UNSETTLED: Final = "unsettled"
PIPELINE: Final = "pipeline"
EDGE_KINDS: Final = (NOT_STORED, TWICE, DISORDER, UNREADABLE, RECONNECTS, UNSETTLED, PIPELINE)
SOON: Final = 1.0
"""Seconds around a fault in which its node may have ended connections because of it, or QoS 0 is lost with one."""
MOST: Final = 20
"""Violations of a kind that are told of one episode."""
APART: Final = 0.1
"""Seconds by which clocks of two processes, that were read at different moments of their turns, may differ."""
Times = list[tuple[float, float]]


class EdgeChecker:
    """`harmed`: when something befell a node that ends its connections, from when to when. `broken`: when a link did,
    as nodes say."""

    def __init__(
        self,
        history: History,
        stored: list[StoredRow],
        status: EdgeStatus,
        harmed: Mapping[str, Times],
        broken: list[float],
    ) -> None:
        self.history = history
        self.stored = stored
        self.status = status
        self.harmed = harmed
        self.broken = sorted(broken)
        self.sent = Counter(event.message for event in history.events if isinstance(event, Sent))
        self.acknowledged = {event.message for event in history.events if isinstance(event, Acknowledged)}
        self.place = len(history.events)
        self.qos0: Counter[str] = Counter()
        """How many were sent, and are not there; and how many of these in calm times."""
        self._known: dict[str, list[Stretch]] = {}

    def check(self) -> list[Violation]:
        found = (self._gaps, self._strange, self._counts, self._qos0, self._order, self._late, self._reconnects)
        return [Violation(kind, self.place, text) for each in found for kind, text in _some(each())]

    # ---- each store --------------------------------------------------------------------------------------------

    def _gaps(self) -> Iterator[tuple[str, str]]:
        expected: dict[str, int] = defaultdict(lambda: 1)
        for each in self.stored:
            if each.row.position != expected[each.node]:
                yield UNREADABLE, f"position {each.row.position} of {each.node} comes after {expected[each.node] - 1}"
            expected[each.node] = each.row.position + 1

    def _strange(self) -> Iterator[tuple[str, str]]:
        for each in self.stored:
            row, note = each.row, self.history.notes.get(each.row.message)
            is_of = note is not None and (
                (row.topic, row.size, row.qos, row.publisher) == (note.topic, note.size, note.qos, note.publisher)
            )
            if not is_of:
                yield UNREADABLE, f"{each.node} has {row}, which is not {note}"
            elif self.rank(each) is None:
                yield UNREADABLE, f"{each.node} has {row}, and no stretch says so: {self._stretches(row.topic)}"

    # ---- all stores together -----------------------------------------------------------------------------------

    def _counts(self) -> Iterator[tuple[str, str]]:
        where: dict[int, list[str]] = defaultdict(list)
        for each in self.stored:
            where[each.row.message].append(f"{each.node}:{each.row.position}")
        for number, note in self.history.notes.items():
            places = where[number]
            if note.qos and number in self.acknowledged and not places:
                yield NOT_STORED, f"{note} was acknowledged"
            most = self.sent[number] if note.qos == 1 else 1
            if len(places) > most:
                yield TWICE, f"{note} is at {', '.join(places)}, and was sent {self.sent[number]} times"

    def _qos0(self) -> Iterator[tuple[str, str]]:
        """What was sent while nothing was wrong and no link broke, by who was still connected a second later."""
        there = {each.row.message for each in self.stored}
        calm = calm_times(self.history)
        ends: dict[str, list[float]] = defaultdict(list)
        for event in self.history.events:
            if isinstance(event, Disconnected):
                ends[event.client].append(event.at)
        for event in self.history.events:
            note = self.history.notes.get(event.message) if isinstance(event, Sent) else None
            if note is None or note.qos:
                continue
            self.qos0["sent"] += 1
            if note.message in there:
                continue
            self.qos0["not there"] += 1
            broke = _any_around(ends[note.publisher], event.at) or _any_around(self.broken, event.at)
            if not broke and any(begin + SOON < event.at < end - SOON for begin, end in calm):
                yield NOT_STORED, f"{note} was sent at {event.at:.3f} while nothing was wrong"

    # ---- order -------------------------------------------------------------------------------------------------

    def _stretches(self, topic: str) -> list[Stretch]:
        if topic not in self._known:
            self._known[topic] = stretches_of(self.status, topic)
        return self._known[topic]

    def rank(self, stored: StoredRow) -> int | None:
        """The place of its stretch among those of its topic."""
        position = stored.row.position
        for rank, each in enumerate(self._stretches(stored.row.topic)):
            if each.id == stored.store and each.first <= position and (each.last is None or position <= each.last):
                return rank
        return None

    def _firsts(self) -> dict[int, tuple[int, StoredRow]]:
        """Of each message what comes first by stretches, with the place of its stretch."""
        found: dict[int, tuple[int, StoredRow]] = {}
        for each in self.stored:
            rank = self.rank(each)
            if rank is None:
                continue
            before = found.get(each.row.message)
            if before is None or (rank, each.row.position) < (before[0], before[1].row.position):
                found[each.row.message] = (rank, each)
        return found

    def _rows(self) -> dict[tuple[str, ...], list[Note]]:
        """Messages whose order is known, as they were sent."""
        visits = self._visits()
        found: dict[tuple[str, ...], list[Note]] = defaultdict(list)
        for note in self.history.notes.values():
            if stays(note.publisher):
                found[note.publisher, note.topic, str(note.qos)].append(note)
            elif self.sent[note.message] == 1 and note.message in visits:
                found[note.publisher, visits[note.message], note.topic, str(note.qos)].append(note)
        return found

    def _visits(self) -> dict[int, str]:
        """Of messages of clients that move, the visit in which they were sent: a client and a number."""
        number: Counter[str] = Counter()
        at: dict[str, str] = {}
        found: dict[int, str] = {}
        for event in self.history.events:
            if isinstance(event, Arrived) and at.get(event.client) != event.node:
                at[event.client] = event.node
                number[event.client] += 1
            elif isinstance(event, Sent):
                publisher = self.history.notes[event.message].publisher
                if publisher in at:
                    found[event.message] = f"visit {number[publisher]}"
        return found

    def _order(self) -> Iterator[tuple[str, str]]:
        firsts = self._firsts()
        for order, notes in self._rows().items():
            last: tuple[int, int, Note, str] | None = None
            for note in notes:
                if note.message not in firsts:
                    continue
                rank, each = firsts[note.message]
                place = f"{each.node}:{each.row.position} (stretch {rank})"
                if last is not None and (rank, each.row.position) < last[:2]:
                    text = f"message {note.message} of {' '.join(order)} is at {place}"
                    yield DISORDER, f"{text}, and message {last[2].message}, which was sent before, at {last[3]}"
                last = rank, each.row.position, note, place

    def _late(self) -> Iterator[tuple[str, str]]:
        """What was sent later was there earlier, in another store: who follows both sees that. What is published at the
        new owner itself does not wait (docs/edge-tiers.md)."""
        firsts = self._firsts()
        for order, notes in self._rows().items():
            if not stays(order[0]):
                continue
            latest: StoredRow | None = None
            for note in notes:
                if note.message not in firsts:
                    continue
                each = firsts[note.message][1]
                if each.node == home(order[0]):
                    continue
                if latest is not None and each.node != latest.node and each.arrival < latest.arrival - APART:
                    text = f"message {note.message} of {' '.join(order)} was at {each.node}:{each.row.position}"
                    earlier = f"{latest.row.message}, which was sent before, was at {latest.node}"
                    yield DISORDER, f"{text} {latest.arrival - each.arrival:.3f} s before message {earlier}"
                if latest is None or each.arrival > latest.arrival:
                    latest = each

    # ---- connections -------------------------------------------------------------------------------------------

    def _reconnects(self) -> Iterator[tuple[str, str]]:
        """Of clients that move only in calm times: a node that was stopped may read their CONNECT late, and take
        over."""
        calm = calm_times(self.history)
        for event in self.history.events:
            if not isinstance(event, Ended) or self._was_harmed(event.node, event.at):
                continue
            if stays(event.client) or any(begin + SOON < event.at < end for begin, end in calm):
                yield RECONNECTS, f"{event.node} ended the connection of {event.client} at {event.at:.3f}"

    def _was_harmed(self, node: str, at: float) -> bool:
        return any(begin - SOON < at < end + SOON for begin, end in self.harmed.get(node, []))


def _any_around(times: list[float], at: float) -> bool:
    """`times` is sorted."""
    place = bisect_right(times, at - SOON)
    return place < len(times) and times[place] < at + SOON


def _some(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The first ones of each kind, and how many more there are: one fault may befall all messages behind it."""
    times: Counter[str] = Counter()
    for kind, text in found:
        times[kind] += 1
        if times[kind] <= MOST:
            yield kind, text
    for kind, count in times.items():
        if count > MOST:
            yield kind, f"and {count - MOST} more"
