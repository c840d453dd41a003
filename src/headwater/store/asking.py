"""Questions to a node by HTTP, without a connection between them: tries again, and goes where a node sends it.

A node of an edge of several may answer that another node has what was asked for: it is asked there. Who we are is said
to that node as well, which the first one names; but never without TLS if the first one was asked with it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import pyarrow as pa

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
"""Seconds between two tries."""
NOT_NOW: Final = (429, 502, 503, 504)
ELSEWHERE: Final = 307
SCOPE: Final = "Headwater-Scope"
"""A header that says that the node's own store is meant: nodes that know of no other do not look at it."""
READ: Final = 1 << 16
LONGEST_ANSWER: Final = 1 << 16
"""Bytes of an error that are read."""
CUT: Final = (OSError, http.client.HTTPException, pa.ArrowInvalid, json.JSONDecodeError)
Part = TypeVar("Part")
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


class Elsewhere(Exception):
    """Another node has what was asked for."""

    def __init__(self, reader: Asker) -> None:
        super().__init__(reader.url)
        self.reader = reader


class Asker:
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
        if token is not None and user is not None:
            raise ValueError("either `token`, or `user` and `password`")
        self._is_at(url)
        self.timeout = timeout
        self.retries = retries
        self._ca = ca
        self._is_sent = False
        """Another node has sent us here."""
        self._headers: dict[str, str] = {SCOPE: "store"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            secret = b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"

    def at(self, url: str) -> Self:
        """The same caller at another node. Raises Refused if that would show without TLS who we are."""
        other = copy(self)
        other._is_at(url)
        if self._secure and not other._secure:
            raise Refused(
                ELSEWHERE, "insecure", f"{self.url} names {url}, which has no TLS; give that node a certificate, too"
            )
        return other

    def _is_at(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address such as http://localhost:8080")
        self.url = url
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")

    def _resumed(
        self,
        asked: dict[str, Any],
        parts_of: Callable[[Any, dict[str, Any]], Iterator[Part]],
        end_of: Callable[[Part], tuple[Position, int]],
    ) -> Iterator[Part]:
        """The parts of an answer; where it is cut, the rest is asked for. `end_of` a part is behind which position to
        go on, and how many messages it has."""
        tries = Tries(self.retries)
        while True:
            try:
                for part in parts_of(self, asked):
                    tries.progress()
                    asked["after"], count = end_of(part)
                    if asked["limit"] is not None:
                        asked["limit"] -= count
                    yield part
                return
            except Elsewhere as other:
                yield from other.reader._resumed({**asked, "scope": "store"}, parts_of, end_of)
                return
            except CUT as error:
                if asked["limit"] == 0:
                    return
                tries.failed(error, self.url)

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
        tries = Tries(self.retries)
        while True:
            try:
                with self._opened(method, path, asked or {}, body) as answer:
                    return answer.read()
            except Elsewhere as other:
                return other.reader._call(method, path, {**(asked or {}), "scope": "store"}, body)
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
                if answer.status == ELSEWHERE and not self._is_sent:
                    raise Elsewhere(self._sent_to(answer.getheader("Location", "")))
                if answer.status >= 300:
                    raise _error(answer.status, answer.read(LONGEST_ANSWER))
                yield answer

    def _sent_to(self, location: str) -> Self:
        """Once only: who is sent on again is sent around."""
        parts = urlsplit(location)
        url = f"{parts.scheme}://{parts.netloc}"
        try:
            other = self.at(url)
        except ValueError:
            raise Unreachable(f"{self.url} sends us to {location!r}, which is no address") from None
        other._is_sent = True
        return other

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context(cafile=self._ca)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)


def behind(began: Position | None, position: int) -> Position:
    """Where reading goes on; who named the store at first goes on in no other."""
    id, colon, _ = began.rpartition(":") if isinstance(began, str) else ("", "", "")
    return f"{id}:{position}" if colon else position


class Tries:
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


def lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
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


def events(answer: http.client.HTTPResponse, alive: Callable[[], None]) -> Iterator[tuple[str, Any]]:
    """Server-sent events: their names and data, which is one line of JSON."""
    kind = ""
    for line in lines(answer):
        alive()
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])
        elif not line:
            kind = ""
