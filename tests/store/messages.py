"""Messages for stores, how tests write and read them, and a second opinion on what queries mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from hypothesis import strategies as st

from headwater.store.chunk import Chunk
from headwater.store.entry import EARLIEST, LATEST, Entry
from headwater.store.extract import Extraction
from headwater.store.intake import RETAIN, Intake, Taken
from headwater.store.query import Query
from headwater.store.store import Store
from tests.routing.strategies import filters, topics

SECOND = 1_000_000
NOON = 1_760_000_000 * SECOND
"""When messages of tests arrive, unless they say otherwise."""
MICROSECONDS = Extraction(unit="us")
"""With it, `payload` means the times that it is given."""


def payload(time: int | None = None, value: float | None = None) -> bytes:
    """JSON with what is given, as a device would send it."""
    content = {"ts": time, "value": value}
    return json.dumps({name: each for name, each in content.items() if each is not None}).encode()


class Writer:
    """The one that writes to a store; `next` is the position that its next message gets."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.intake = Intake(store.next)

    @property
    def next(self) -> int:
        return self.intake.next

    def take(
        self,
        topic: str = "a",
        payload: bytes = b"x",
        *,
        qos: int = 0,
        retain: bool = False,
        publisher: str = "device",
        arrival: int = NOON,
        properties: bytes = b"",
    ) -> int:
        flags = qos | (RETAIN if retain else 0)
        return self.intake.take(
            topic.encode(), payload, flags, publisher, arrival, {"properties": properties} if properties else None
        )

    def append(self, note: bytes = b"") -> None:
        """What was taken."""
        taken = self.intake.hand_over()
        if taken is not None:
            self.store.append(taken, note)

    def sync(self) -> None:
        self.append()
        self.store.sync()

    def write(self, *topics: str) -> None:
        """A message to each, synced together."""
        for topic in topics:
            self.take(topic)
        self.sync()

    def write_entries(self, entries: Iterable[Entry]) -> None:
        """Messages with these contents; time and value have to follow from the payload."""
        for entry in entries:
            position = self.take(
                entry.topic,
                entry.payload,
                qos=entry.qos,
                retain=entry.retain,
                publisher=entry.publisher,
                arrival=entry.arrival,
                properties=entry.properties,
            )
            assert position == entry.position


def read(chunks: Iterable[Chunk]) -> list[Entry]:
    return [entry for chunk in chunks for entry in chunk.entries()]


def found(store: Store, query: Query | None = None) -> list[Entry]:
    return read(store.select(query or Query()))


def positions(store: Store, query: Query | None = None) -> list[int]:
    return [entry.position for entry in found(store, query)]


def taken_of(payloads: Iterable[bytes], arrival: int = NOON) -> Taken:
    intake = Intake(1)
    for each in payloads:
        intake.take(b"a", each, 0, "device", arrival)
    return intake.hand_over() or Taken(1)


# ---- a second opinion ----------------------------------------------------------------------------------------------


def topic_matches(filter: str | None, topic: str) -> bool:
    """By a regular expression, which shares nothing with what stores do."""
    if filter is None:
        return True
    if topic.startswith("$") and filter[0] in "+#":
        return False
    text = re.escape(filter).replace(r"\+", "[^/]*").replace(r"\#", "#")
    text = ".*" if text == "#" else re.sub("/#$", "(/.*)?", text)
    return re.fullmatch(text, topic, re.DOTALL) is not None


def asked(entries: Iterable[Entry], query: Query) -> list[Entry]:
    """Those of the entries that a query is about."""
    chosen = [entry for entry in entries if topic_matches(query.filter, entry.topic)]
    if query.may_read is not None:
        chosen = [entry for entry in chosen if query.may_read(entry.topic)]
    if query.start is not None:
        chosen = [entry for entry in chosen if entry.time >= query.start]
    if query.end is not None:
        chosen = [entry for entry in chosen if entry.time < query.end]
    if query.low is not None:
        chosen = [entry for entry in chosen if entry.value is not None and entry.value >= query.low]
    if query.high is not None:
        chosen = [entry for entry in chosen if entry.value is not None and entry.value <= query.high]
    if query.after is not None:
        chosen = [entry for entry in chosen if entry.position > query.after]
    if query.before is not None:
        chosen = [entry for entry in chosen if entry.position < query.before]
    return chosen if query.limit is None else chosen[: query.limit]


# ---- at random -----------------------------------------------------------------------------------------------------

TIMES = [EARLIEST, -SECOND, -1, 0, 1, NOON - 1, NOON, NOON + 1, NOON + 3600 * SECOND, LATEST]
VALUES = [-1e308, -2.5, -0.0, 0.0, 5e-324, 1.0, 2.5, 30.0, float(2**53), 1e308]
PUBLISHERS = ["device", "", "é日本🚰", "x" * 200]

times = st.sampled_from(TIMES) | st.integers(EARLIEST, LATEST)
values = st.sampled_from(VALUES) | st.floats(allow_nan=False, allow_infinity=False)
arrivals = st.integers(NOON, NOON + 100 * SECOND)


@st.composite
def contents(draw: st.DrawFn) -> Entry:
    """A message at no position yet (0), whose time and value MICROSECONDS finds."""
    arrival = draw(arrivals)
    time, value = draw(st.none() | times), draw(st.none() | values)
    if time is None and value is None:
        body = draw(st.binary(max_size=20).map(lambda rest: b"\xff" + rest) | st.just(b""))
    else:
        body = payload(time, value)
    return Entry(
        *(0, draw(topics), body, draw(st.integers(0, 2)), draw(st.booleans()), draw(st.sampled_from(PUBLISHERS))),
        *(arrival if time is None else time, arrival, value, draw(st.sampled_from([b"", b"", b'{"user":[]}']))),
    )


def numbered(contents: Iterable[Entry], first: int = 1) -> list[Entry]:
    return [entry._replace(position=position) for position, entry in enumerate(contents, first)]


def _is_plain(topic: str) -> bool:
    return topic.isascii()


@st.composite
def queries(draw: st.DrawFn, most: int = 100) -> Query:
    """About some of `most` messages."""
    spot = st.none() | st.integers(0, most + 1)
    return Query(
        filter=draw(st.none() | filters | topics),
        start=draw(st.none() | st.none() | times),
        end=draw(st.none() | st.none() | times),
        low=draw(st.none() | st.none() | values | st.sampled_from([float("-inf"), float("nan")])),
        high=draw(st.none() | st.none() | values | st.sampled_from([float("inf"), float("nan")])),
        after=draw(spot),
        before=draw(spot),
        limit=draw(st.none() | st.integers(0, most)),
        may_read=draw(st.none() | st.none() | st.just(_is_plain)),
    )
