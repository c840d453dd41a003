"""What a history shows that must not be: lost, doubled, reordered, strange, stale.

Theory. A message is published at one moment (or one for each sending, with QoS 1) between the sending of PUBLISH and
its acknowledgement. Who was surely subscribed over all of that span must have got it; who was surely not must not.
For QoS 1 the span begins with the last sending, since each one is a message of its own; for QoS 2 with the first,
since the others are repetitions. A will is published between its CONNECT and the client's next CONNACK.

- lost: acknowledged, or a will that was due, and somebody who must have got it did not (of a shared group: nobody
  did).
- doubled: a QoS 2 delivery that was handed over twice to one session (one group); a QoS 1 delivery that came more
  often on one connection than it was published, or again after all was acknowledged and the broker was stopped in
  peace.
- reordered: what a session got first of one publisher, topic and QoS is not in the order of sending [MQTT-4.6.0-6].
- strange: damaged, never sent, nobody asked for it (any more), a will that was called off, another QoS.
- stale: a retained message that is older than the last one acknowledged, or gone without reason.
- session: a CONNACK that knows a session that is gone, or does not know one that must be there.
- expired: delivered after its time, or with more time left than it has.
- protocol: what the clients saw that no history explains.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headwater_lab.chaos.claims import END, Claim, claims_of
from headwater_lab.chaos.history import (
    Acknowledged,
    Connected,
    Connecting,
    Event,
    History,
    Note,
    Oddity,
    Received,
    Sent,
    Settled,
    Shown,
)
from headwater_lab.chaos.sessions import SLACK, wrong_sessions
from headwater_lab.chaos.spans import Span, read_wills

KINDS: Final = ("lost", "doubled", "reordered", "strange", "stale", "session", "expired", "protocol")
LASTING: Final = 60
"""Seconds from which on an expiry interval is longer than an episode."""


@dataclass(slots=True)
class Violation:
    kind: str
    place: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} (event {self.place})"


class Checker:
    def __init__(self, history: History) -> None:
        self.history = history
        self.events: list[Event] = history.events
        self.claims: dict[str, list[Claim]] = defaultdict(list)
        for claim in claims_of(history):
            self.claims[claim.client].append(claim)
        self.spans: dict[int, Span] = defaultdict(Span)
        self.received: dict[int, list[tuple[int, Received]]] = defaultdict(list)
        self.connection: dict[int, Connecting] = {}
        """Of each Received, by its place."""
        self.session: dict[int, int] = {}
        """Likewise, the place where its session began, or may have."""
        self._read()
        read_wills(history, self.spans)

    def _read(self) -> None:
        connections: dict[str, Connecting] = {}
        sessions: dict[str, int] = {}
        for place, event in enumerate(self.events):
            if isinstance(event, Sent):
                span = self.spans[event.message]
                span.sent = min(span.sent, place)
                span.times += 1
                if span.acknowledged == END:
                    span.sent_last = place
            elif isinstance(event, Acknowledged):
                span = self.spans[event.message]
                span.acknowledged = min(span.acknowledged, place)
                span.due = True
            elif isinstance(event, Connecting):
                connections[event.client] = event
                if event.clean:  # the client has forgotten its part
                    sessions[event.client] = place
            elif isinstance(event, Connected) and not event.present:
                sessions[event.client] = place
            elif isinstance(event, Received):
                self.received[event.message].append((place, event))
                self.connection[place] = connections[event.client]
                self.session[place] = sessions.get(event.client, 0)

    def check(self) -> list[Violation]:
        return [
            *self.lost(),
            *self.doubled(),
            *self.unforgotten(),
            *self.reordered(),
            *self.strange(),
            *self.stale(),
            *self.expired(),
            *(Violation("session", place, text) for place, text in wrong_sessions(self.history)),
            *self.odd(),
        ]

    # ---- lost --------------------------------------------------------------------------------------------------

    def lost(self) -> Iterator[Violation]:
        for note in self.history.notes.values():
            span = self.spans[note.message]
            if note.qos == 0 or note.size == 0 or not span.due or self._is_short(note):
                continue
            got = {event.client for _, event in self.received[note.message]}
            for owed in self._owed(note, span):
                if not owed & got:
                    what = f"{'will' if note.will else 'message'} {note.message} of {note.publisher} (QoS {note.qos})"
                    place = min(span.acknowledged, len(self.events) - 1)
                    yield Violation("lost", place, f"{what} to {note.topic} never came to {' or '.join(sorted(owed))}")

    def _is_short(self, note: Note) -> bool:
        """Whether it, or an earlier sending of it, may have expired."""
        return note.expiry is not None and note.expiry < LASTING

    def _owed(self, note: Note, span: Span) -> Iterator[set[str]]:
        """Sets of clients, of each of which one at least must have got the message."""
        first = span.sent_last if note.qos == 1 else span.sent
        groups: dict[str, set[str]] = defaultdict(set)
        sure: set[str] = set()
        for client, claims in self.claims.items():
            for claim in claims:
                if claim.qos == 0 or not claim.wants(note.topic):
                    continue
                if claim.share is not None:
                    groups[claim.name].add(client)
                if claim.surely(first, span.acknowledged):
                    if claim.share is None:
                        yield {client}
                        break
                    sure.add(claim.name)
        for name in sure:
            yield groups[name]

    # ---- doubled -----------------------------------------------------------------------------------------------

    def doubled(self) -> Iterator[Violation]:
        for message, received in self.received.items():
            note = self.history.notes.get(message)
            if note is None or message == 0:
                continue
            handed_over: Counter[tuple[str, int]] = Counter()
            copies: Counter[tuple[str, float]] = Counter()
            for place, event in received:
                if event.retain:
                    continue
                if event.qos == 2 and event.fresh:
                    group = self._group(event.client, note.topic)
                    receiver = (group, 0) if group is not None else (event.client, self.session[place])
                    handed_over[receiver] += 1
                    if handed_over[receiver] == 2:
                        text = f"message {message} of {note.publisher} was handed over twice to {receiver[0]}"
                        yield Violation("doubled", place, text)
                connection = (event.client, self.connection[place].at)
                copies[connection] += 1
                allowed = self.spans[message].times if note.qos == 1 and event.qos == 1 else 1
                if copies[connection] == allowed + 1 and not note.will:
                    text = f"{allowed + 1} copies of message {message} came to {event.client} on one connection"
                    yield Violation("doubled", place, f"{text}, which was published {allowed} times")

    def unforgotten(self) -> Iterator[Violation]:
        """What comes again though it was done."""
        settled = False
        before: set[int] = set()
        for place, event in enumerate(self.events):
            if isinstance(event, Settled):
                settled = True
            elif isinstance(event, Sent) and not settled:
                before.add(event.message)
            elif isinstance(event, Received) and settled and event.message in before:
                text = f"message {event.message} came to {event.client} again after all was acknowledged"
                yield Violation("doubled", place, text)

    def _group(self, client: str, topic: str) -> str | None:
        for claim in self.claims[client]:
            if claim.share is not None and claim.wants(topic):
                return claim.name
        return None

    # ---- reordered ---------------------------------------------------------------------------------------------

    def reordered(self) -> Iterator[Violation]:
        latest: dict[tuple[str, str, str, int], int] = defaultdict(int)
        seen: set[tuple[str, int]] = set()
        for place, event in enumerate(self.events):
            if not isinstance(event, Received) or event.retain or (event.client, event.message) in seen:
                continue
            note = self.history.notes.get(event.message)
            if note is None or note.will or self._is_short(note) or not self._was_subscribed(event.client, note):
                continue
            seen.add((event.client, event.message))
            order = (event.client, note.publisher, note.topic, note.qos)
            if event.message < latest[order]:
                text = f"message {event.message} of {note.publisher} came to {event.client} after {latest[order]}"
                yield Violation("reordered", place, text)
            latest[order] = max(latest[order], event.message)

    def _was_subscribed(self, client: str, note: Note) -> bool:
        """From the first sending on: otherwise it may have missed that, and got a later one. There is no order in a
        group."""
        span = self.spans[note.message]
        return any(
            claim.share is None and claim.wants(note.topic) and claim.surely(span.sent, span.acknowledged)
            for claim in self.claims[client]
        )

    # ---- strange -----------------------------------------------------------------------------------------------

    def strange(self) -> Iterator[Violation]:
        for message, received in self.received.items():
            for place, event in received:
                text = self._strange(place, event, self.history.notes.get(message))
                if text:
                    yield Violation("strange", place, f"{event.client} got message {message}, {text}")

    def _strange(self, place: int, event: Received, note: Note | None) -> str:
        if event.message == 0:
            return ""  # an empty payload says nothing of its origin
        if event.message == -1:
            return "which is damaged"
        if note is None or self.spans[event.message].sent > place:
            return "which nobody has sent"
        if event.topic != note.topic:
            return f"which was sent to {note.topic}, as one to {event.topic}"
        if self.spans[event.message].called_off:
            return "a will that was called off"
        if event.retain:
            return "" if note.retain else "as a retained one, which it is not"
        sent = self.spans[event.message].sent
        claims = [claim for claim in self.claims[event.client] if claim.wants(note.topic)]
        claims = [claim for claim in claims if claim.perhaps(sent, place)]
        if not claims:
            return "to which it was not subscribed"
        if all(event.qos != min(note.qos, claim.qos) for claim in claims):
            return f"with QoS {event.qos}"
        return ""

    # ---- retained ----------------------------------------------------------------------------------------------

    def stale(self) -> Iterator[Violation]:
        topics: dict[str, list[Note]] = defaultdict(list)
        for note in self.history.notes.values():
            if note.retain:
                topics[note.topic].append(note)
        for place, event in enumerate(self.events):
            if not isinstance(event, Shown):
                continue
            for topic, notes in topics.items():
                if topic.startswith(event.filter.removesuffix("#")):
                    text = self._stale(place, event, notes, event.found.get(topic, 0))
                    if text:
                        yield Violation("stale", place, f"{topic}: {text}")
            for topic in event.found.keys() - topics.keys():
                yield Violation("stale", place, f"{topic} has a retained message that nobody has sent")

    def _stale(self, place: int, shown: Shown, notes: list[Note], found: int) -> str:
        sent = [note for note in notes if self.spans[note.message].sent < place]
        known = [note.message for note in sent if self.spans[note.message].acknowledged < shown.asked]
        least = max(known, default=0)
        possible = [note for note in sent if note.message >= least]
        now = self.events[shown.asked].at
        if found:
            for note in possible:
                if note.message == found and note.size:
                    return f"message {found} has expired" if self._has_expired(note, now, SLACK) else ""
            return f"retained is message {found}, and {least} was acknowledged"
        if least == 0 or any(note.size == 0 or self._has_expired(note, now, -SLACK) for note in possible):
            return ""
        return f"nothing is retained, and {least} was acknowledged"

    def _has_expired(self, note: Note, now: float, slack: float) -> bool:
        acknowledged = self.spans[note.message].acknowledged
        if note.expiry is None:
            return False
        since = self.events[acknowledged].at if acknowledged != END else now
        return now > since + note.expiry + slack

    # ---- expired -----------------------------------------------------------------------------------------------

    def expired(self) -> Iterator[Violation]:
        for expiry, span, place, event in self._expiring():
            waited = self.connection[place].at - self.events[span.acknowledged].at
            text = f"message {event.message} came to {event.client}"
            if waited > expiry + SLACK and not event.dup:
                text += f" {waited:.1f} s after it was published, and expires after {expiry} s"
                yield Violation("expired", place, text)
            elif event.left is not None:
                longest = max(1.0, expiry - max(0.0, waited) + SLACK)  # 0 cannot be said
                shortest = expiry - (event.at - self.events[span.sent].at) - SLACK
                if not shortest <= event.left <= min(longest, expiry):
                    text += f" with {event.left} s left, not {shortest:.1f} to {longest:.1f}"
                    yield Violation("expired", place, text)

    def _expiring(self) -> Iterator[tuple[int, Span, int, Received]]:
        """What came of messages that expire and were acknowledged: after how many seconds, and where it came."""
        for message, received in self.received.items():
            note, span = self.history.notes.get(message), self.spans[message]
            if note is not None and note.expiry is not None and span.acknowledged != END:
                for place, event in received:
                    yield note.expiry, span, place, event

    # ---- protocol ----------------------------------------------------------------------------------------------

    def odd(self) -> Iterator[Violation]:
        for place, event in enumerate(self.events):
            if isinstance(event, Oddity):
                yield Violation("protocol", place, f"{event.client}: {event.text}")
