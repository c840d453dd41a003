"""Reading old messages straight from object storage, where a node says that they are; it is asked for the rest only.

    reader = StoreReader("http://localhost:8080", direct=Direct())
    for batch in reader.read(after=0): …

The node says in which place they are and how far they go there; whoever reads needs credentials of its own for that, by
the environment or as options, which the node never tells. What comes is what the node would have sent: the same rows,
order and columns. Needs pyarrow, and obstore for what is no folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from headwater.store.asking import Position, Refused, Unreachable, behind
from headwater.store.extract import moment
from headwater.store.store import PositionGone

if TYPE_CHECKING:
    from headwater.store.history.reading import History
    from headwater.store.reader import StoreReader

BATCH: Final = 1 << 16
"""Rows of a batch, as a node sends them."""
NO_TIME: Final = 1 << 62


class Place(NamedTuple):
    """All positions of a store before `end` that are left are below this URL."""

    store: str
    url: str
    end: int


def place_in(status: Mapping[str, Any]) -> Place | None:
    """What a node says of itself (`GET /v1/store`); None: nothing of its store is in object storage."""
    found = status.get("history")
    return Place(status["id"], found["url"], found["end"]) if found and found["end"] > found["first"] else None


@dataclass
class Direct:
    """`options` say how places are reached. What is `known` of the store at an address need not be asked."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    known: dict[str, Place | None] = field(default_factory=dict)
    _opened: dict[Place, History] = field(default_factory=dict, repr=False)

    def read(self, reader: StoreReader, asked: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """What is in object storage of what is `asked` in the words of `GET /v1/messages`; `after` and `limit` of that
        go along, and say then what is left to be asked. Raises Unreachable."""
        if reader.url not in self.known:
            self.known[reader.url] = place_in(reader.status())
        place = self.known[reader.url]
        if place is None or asked["limit"] == 0 or not _is_of(place, asked):
            return
        after = None if asked["after"] is None else number_in(asked["after"])
        end = place.end if asked["before"] is None else min(place.end, number_in(asked["before"]))
        if after is not None and after + 1 >= end:
            return
        from headwater.objects import PlaceError

        try:
            for batch in self._batches(place, asked, after, end):
                asked["after"] = behind(asked["after"], batch.column(0)[-1].as_py())
                if asked["limit"] is not None:
                    asked["limit"] -= batch.num_rows
                yield batch
                if asked["limit"] == 0:
                    return
        except PositionGone:
            return  # the node says what is gone, unless it has it itself
        except PlaceError as error:
            raise Unreachable(f"{error}; the node has it, too: read without `direct`") from None
        asked["after"] = behind(asked["after"], end - 1)

    def is_done(self, asked: Mapping[str, Any]) -> bool:
        """Whether nothing is left to be asked of the node."""
        before, after = asked["before"], asked["after"]
        return before is not None and after is not None and number_in(after) + 1 >= number_in(before)

    def _batches(self, place: Place, asked: Mapping[str, Any], after: int | None, end: int) -> Iterator[pa.RecordBatch]:
        from headwater.store.history.rows import NAMES, Topics, Wanted, beginning

        filter = asked["topic"]
        wanted = Wanted(
            *(after, end, _time("from", asked["from"]), _time("to", asked["to"]), asked["min"], asked["max"]),
            topics=None if filter is None else Topics(filter),
            beginning="" if filter is None else beginning(filter),
        )
        columns = NAMES if asked["columns"] is None else asked["columns"].split(",")
        left = asked["limit"]
        for found in self._history(place).parts(wanted, end, columns):
            rows = found if left is None else found.slice(0, left)
            for start in range(0, rows.num_rows, BATCH):
                yield rows.slice(start, BATCH)
            if left is not None:
                left -= rows.num_rows
                if left == 0:
                    return

    def _history(self, place: Place) -> History:
        from headwater.store.history.reading import History

        found = self._opened.get(place)
        if found is None:
            found = self._opened[place] = History(place.url, place.store, self.options)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Direct, (self.options, self.known)


def ends_of(place: Place, options: Mapping[str, str], after: int, last: int) -> list[int]:
    """The last positions of the objects that have any behind `after` and up to `last`; of none if the place does not
    answer."""
    from headwater.objects import PlaceError
    from headwater.store.history.reading import History

    try:
        history = History(place.url, place.store, options)
        manifest = history.manifest(min(last + 1, place.end))
        return [entry.end - 1 for entry in history.catalog.entries(manifest, after, last + 1)]
    except PlaceError:
        return []


def number_in(position: Position) -> int:
    return position if isinstance(position, int) else int(position.rpartition(":")[2])


def _is_of(place: Place, asked: Mapping[str, Any]) -> bool:
    ids = [each.rpartition(":")[0] for each in (asked["after"], asked["before"]) if isinstance(each, str)]
    return all(id in ("", place.store) for id in ids)


def _time(name: str, said: Any) -> int | None:
    """As the node reads it."""
    if said is None:
        return None
    found = moment(said, 0.0, NO_TIME)
    if found == NO_TIME:
        raise Refused(422, "unprocessable", f"`{name}` must be ISO 8601 or a Unix timestamp")
    return found
