"""A client for REST over a store: Arrow by position. What Spark's executors import, so it needs pyarrow and no more.

    reader = StoreReader("http://localhost:8080", token="…")
    for batch in reader.read(after=reader.reader("lakehouse")["position"]):
        …
        reader.commit("lakehouse", batch["position"][-1].as_py())

A reader holds no connection between calls and can be pickled. A connection that is cut is made again, and reading goes
on behind the last position that came: nothing is missing and nothing comes twice. What cannot be had is said by one of
three errors: `Gone`, `Refused`, `Unreachable`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from headwater.store.arrow_schema import PLAIN

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
"""Seconds between two tries."""
NOT_NOW: Final = (429, 502, 503, 504)
READ: Final = 1 << 16
LONGEST_SILENCE: Final = 60.0
"""Seconds without a sign of life, of which a tail gives one every 15."""
LONGEST_ANSWER: Final = 1 << 16
"""Bytes of an error that are read."""
CUT: Final = (OSError, http.client.HTTPException, pa.ArrowInvalid, json.JSONDecodeError)
Found = TypeVar("Found")
Part = TypeVar("Part")
Time = datetime | str | int | float
Position = int | str


class StoreError(Exception):
    """Something of a store cannot be had."""


class Gone(StoreError):
    """Retention has removed what was asked for: `first` is the first position left, `lost` how many are gone."""

    def __init__(self, detail: str, first: int, next: int, lost: int) -> None:
        super().__init__(detail, first, next, lost)
        self.detail = detail
        self.first = first
        self.next = next
        self.lost = lost

    def __str__(self) -> str:
        return self.detail


class Refused(StoreError):
    """The node says no, and why."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(status, error, detail)
        self.status = status
        self.error = error
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.detail} ({self.status} {self.error})"


class Unreachable(StoreError):
    """The node does not answer, or not now, however often it is asked."""


class StoreReader:
    """`url` is the node's, such as `http://localhost:8080`; `token` or `user` and `password` say who asks. `ca` is a
    file with the authorities that may have signed its certificate, instead of the system's. A try that fails is made
    again up to `retries` times, unless something has come meanwhile; each waits up to `timeout` seconds."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        ca: str | None = None,
    ) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address such as http://localhost:8080")
        if token is not None and user is not None:
            raise ValueError("either `token`, or `user` and `password`")
        self.url = url
        self.timeout = timeout
        self.retries = retries
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._ca = ca
        self._headers: dict[str, str] = {}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            secret = b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"

    # ---- messages ----------------------------------------------------------------------------------------------

    def read(
        self,
        after: Position | None = None,
        before: Position | None = None,
        topic: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        low: float | None = None,
        high: float | None = None,
        limit: int | None = None,
        *,
        dictionaries: bool = True,
        compression: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Messages with `after` < position < `before`, of topics that match, measured from `start` to before `end`,
        with values from `low` to `high`. Without `dictionaries`, topics and publishers are plain strings. Of
        `columns`, only these come, and `position` before them."""
        asked = _asked(after, before, topic, start, end, low, high, limit)
        asked["format"] = "arrow"
        asked["compression"] = compression
        asked["columns"] = None if columns is None else ",".join(dict.fromkeys(["position", *columns]))
        for batch in self._resumed(asked, self._batches, lambda batch: (batch.column(0)[-1].as_py(), batch.num_rows)):
            yield batch if dictionaries else _plain(batch)

    def messages(
        self,
        after: Position | None = None,
        before: Position | None = None,
        topic: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        low: float | None = None,
        high: float | None = None,
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The same, one by one, as the node writes them in JSON: for few."""
        asked = _asked(after, before, topic, start, end, low, high, limit)
        asked["format"] = "ndjson"
        yield from self._resumed(asked, self._objects, lambda message: (message["position"], 1))

    def tail(self, topic: str | None = None, after: Position | None = None) -> Iterator[dict[str, Any]]:
        """Messages as they come, from behind a position or from now on, without end. Raises Gone if retention overtakes
        it."""
        asked: dict[str, Any] = {"topic": topic, "after": after}
        tries = _Tries(self.retries)
        while True:
            try:
                with self._opened("GET", "/v1/tail", asked, least=LONGEST_SILENCE) as answer:
                    for kind, data in _events(answer, tries.progress):
                        if kind == "gone":
                            raise Gone("retention has overtaken the tail", data["first"], data["next"], data["lost"])
                        asked["after"] = _behind(after, data["position"])
                        yield data
                raise ConnectionError("the tail has ended")
            except CUT as error:
                tries.failed(error, self.url)

    def latest(self, topic: str) -> dict[str, Any] | None:
        """The last message of a topic; None if there is none that the caller may read."""
        return self._found("GET", f"/v1/topics/{quote(topic, safe='')}/latest")

    def topics(self, filter: str | None = None) -> Iterator[dict[str, Any]]:
        """Topics that match, with how many messages there are of each, the first and the last."""
        after: str | None = None
        while True:
            page = self._json("GET", "/v1/topics", {"filter": filter, "after": after})
            yield from page["topics"]
            after = page["next"]
            if after is None:
                return

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> int | None:
        """Returns when the message is on disk, with its position; None: topics like this are not stored. It is tried
        once: a second try could publish it twice."""
        asked = {"qos": qos, "retain": "true" if retain else "false"}
        answer: dict[str, Any] = self._once("POST", f"/v1/topics/{quote(topic, safe='')}", asked, payload)
        position: int | None = answer["position"]
        return position

    # ---- the store and its readers -----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What the store holds: `id`, `first`, `next` and more."""
        return self._json("GET", "/v1/store")

    def clock(self) -> tuple[datetime, int]:
        """A moment, and a position: every message that arrived before the moment has a position before that one and
        can be read, and those to come arrive at the moment or later."""
        found = self._json("GET", "/v1/store/clock")
        return datetime.fromisoformat(found["clock"]), found["next"]

    def position_at(self, moment: datetime) -> int:
        """The first position of a message that arrived at the moment or later; the next that will be given, if there
        is none yet. Arrivals never go back, so it is looked for in halves."""
        status = self.status()
        low: int = status["first"]
        high: int = status["next"]
        while low < high:
            middle = (low + high) // 2
            [found] = self.messages(after=middle - 1, before=middle + 1, limit=1)
            if datetime.fromisoformat(found["arrival"]) < moment:
                low = middle + 1
            else:
                high = middle
        return high

    def store_id(self) -> str:
        """Of which store the positions are; every caller may know."""
        id: str = self._json("GET", "/v1/topics", {"limit": 1})["store"]
        return id

    def readers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("GET", "/v1/readers")["readers"]
        return found

    def reader(self, name: str) -> dict[str, Any] | None:
        """How far a reader has come: `position`, `lag`, `lost`; None if there is none of this name."""
        return self._found("GET", f"/v1/readers/{quote(name, safe='')}")

    def commit(self, name: str, position: Position) -> dict[str, Any]:
        """The reader has dealt with all up to this position; on disk when this returns. Raises Gone if messages before
        it are not left."""
        body = json.dumps({"position": position}).encode()
        return self._json("PUT", f"/v1/readers/{quote(name, safe='')}", body=body)

    def forget(self, name: str) -> bool:
        """False: there was none of this name."""
        try:
            self._call("DELETE", f"/v1/readers/{quote(name, safe='')}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return False
        return True

    # ---- HTTP --------------------------------------------------------------------------------------------------

    def _resumed(
        self,
        asked: dict[str, Any],
        parts_of: Callable[[dict[str, Any]], Iterator[Part]],
        end_of: Callable[[Part], tuple[int, int]],
    ) -> Iterator[Part]:
        """The parts of an answer; where it is cut, the rest is asked for. `end_of` a part is its last position, and how
        many messages it has."""
        after = asked["after"]
        tries = _Tries(self.retries)
        while True:
            try:
                for part in parts_of(asked):
                    tries.progress()
                    position, count = end_of(part)
                    asked["after"] = _behind(after, position)
                    if asked["limit"] is not None:
                        asked["limit"] -= count
                    yield part
                return
            except CUT as error:
                if asked["limit"] == 0:
                    return
                tries.failed(error, self.url)

    def _objects(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self._opened("GET", "/v1/messages", asked) as answer:
            for line in _lines(answer):
                yield json.loads(line)

    def _batches(self, asked: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        with self._opened("GET", "/v1/messages", asked) as answer, pa.ipc.open_stream(answer) as stream:
            for batch in stream:
                if batch.num_rows:
                    yield batch

    def _found(self, method: str, path: str) -> dict[str, Any] | None:
        try:
            return self._json(method, path)
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    def _json(
        self, method: str, path: str, asked: dict[str, Any] | None = None, body: bytes | None = None
    ) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._call(method, path, asked, body))
        except ValueError as error:
            raise Unreachable(f"{self.url}: something else answers there") from error
        return found

    def _call(self, method: str, path: str, asked: dict[str, Any] | None = None, body: bytes | None = None) -> bytes:
        tries = _Tries(self.retries)
        while True:
            try:
                with self._opened(method, path, asked or {}, body) as answer:
                    return answer.read()
            except CUT as error:
                tries.failed(error, self.url)

    def _once(self, method: str, path: str, asked: dict[str, Any], body: bytes) -> dict[str, Any]:
        try:
            with self._opened(method, path, asked, body) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except CUT as error:
            raise Unreachable(f"{self.url}: {error}") from error

    @contextlib.contextmanager
    def _opened(
        self, method: str, path: str, asked: dict[str, Any], body: bytes | None = None, least: float = 0.0
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is none of an error; its connection ends with it."""
        with contextlib.closing(self._connection(max(self.timeout, least))) as connection:
            query = urlencode({name: value for name, value in asked.items() if value is not None})
            headers = {**self._headers, "Connection": "close"}
            connection.request(method, f"{self._path}{path}{'?' if query else ''}{query}", body, headers)
            with connection.getresponse() as answer:
                if answer.status >= 300:
                    raise _error(answer.status, answer.read(LONGEST_ANSWER))
                yield answer

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context(cafile=self._ca)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)


class _Tries:
    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failures = 0

    def progress(self) -> None:
        self._failures = 0

    def failed(self, error: Exception, url: str) -> None:
        """Wait for the next try, or raise Unreachable."""
        self._failures += 1
        if self._failures > self._retries:
            raise Unreachable(f"{url}: {error or type(error).__name__}") from error
        time.sleep(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (self._failures - 1)))


def _asked(
    after: Position | None,
    before: Position | None,
    topic: str | None,
    start: Time | None,
    end: Time | None,
    low: float | None,
    high: float | None,
    limit: int | None,
) -> dict[str, Any]:
    asked = {"after": after, "before": before, "topic": topic, "from": _time(start), "to": _time(end)}
    return asked | {"min": low, "max": high, "limit": limit}


def _behind(began: Position | None, position: int) -> Position:
    """Where reading goes on; who named the store at first goes on in no other."""
    id, colon, _ = began.rpartition(":") if isinstance(began, str) else ("", "", "")
    return f"{id}:{position}" if colon else position


def _time(moment: Time | None) -> str | int | float | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _error(status: int, body: bytes) -> Exception:
    try:
        said = json.loads(body)
        error, detail = str(said["error"]), str(said["detail"])
    except (ValueError, KeyError, TypeError):
        said, error, detail = {}, "refused", body[:200].decode("utf-8", "replace")
    if status in NOT_NOW:
        return ConnectionError(f"{detail} ({status})")
    if status == 410 and "first" in said:
        return Gone(detail, said["first"], said["next"], said["lost"])
    return Refused(status, error, detail)


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """As they come. http.client's own way takes a cut for the end."""
    begun: list[bytes] = []
    while data := answer.read1(READ):
        first, *others = data.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun)
            begun = [others.pop()]
            yield from others
    if any(begun):
        raise ConnectionError("a line has no end")


def _events(answer: http.client.HTTPResponse, alive: Callable[[], None]) -> Iterator[tuple[str, Any]]:
    """Server-sent events: their names and data, which is one line of JSON."""
    kind = ""
    for line in _lines(answer):
        alive()
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])
        elif not line:
            kind = ""


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([PLAIN.field(name) for name in batch.schema.names]))
