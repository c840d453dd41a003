"""What the spooler answers: the query's progress, and records for executors. HTTP, with a secret token.

| request | |
|---|---|
| `POST /advance` | `{owner, released, beyond, wait}`: Spark has committed all before the offset `released` (one of |
| | another spool, or beyond the end, is ignored); answers how things are, after up to `wait` seconds if there is |
| | nothing behind the number `beyond` yet |
| `GET /records?first=&next=` | the records of a range, as they are on disk |
| `POST /leave` | end |

One query uses a spool: its owner is who asked last, until `LEASE` seconds have passed or the connection on which it
asked is closed, as it is when a process dies. Another one is refused meanwhile (409).
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from headwater.pipeline.mqtt.segment import Slice
from headwater.pipeline.mqtt.spool import Released, Spool, Unknown

LEASE: Final = 5.0
LONGEST_WAIT: Final = 10.0
LONGEST_REQUEST: Final = 1 << 16
COPY: Final = 1 << 18


class Refusal(Exception):
    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"error": error, "detail": detail}


class Service:
    """`released` is called after Spark has committed something, `leave` when the spooler is to end, `described` for
    what else is to be said of it; all by threads of the server."""

    def __init__(
        self,
        spool: Spool,
        token: str,
        *,
        released: Callable[[], None],
        leave: Callable[[], None],
        described: Callable[[], dict[str, Any]],
    ) -> None:
        self.spool = spool
        self.token = token
        self.leave = leave
        self._released = released
        self._described = described
        self._owner = ""
        self._owner_asked_at = float("-inf")
        self._owner_asked_on: object = None
        self._owning = threading.Lock()
        self.asked_at = time.monotonic()

    def advance(self, asked: dict[str, Any], connection: object) -> dict[str, Any]:
        self._claim(str(asked["owner"]), connection)
        offset = asked.get("released")
        if offset is not None and offset["spool"] == self.spool.id and self._is_news(offset["next"]):
            self.spool.release(offset["next"])
            self._released()
        if asked.get("beyond") is not None:
            self.spool.wait_beyond(asked["beyond"], min(float(asked.get("wait", 0.0)), LONGEST_WAIT))
        spool = self.spool
        numbers = {"released": spool.released, "next": spool.next, "bytes": spool.bytes, "is_full": spool.is_full}
        return {"id": spool.id, **numbers, **self._described()}

    def _is_news(self, next: int) -> bool:
        return self.spool.released < next <= self.spool.next

    def closed(self, connection: object) -> None:
        with self._owning:
            if connection is self._owner_asked_on:
                self._owner_asked_at = float("-inf")

    def _claim(self, owner: str, connection: object) -> None:
        with self._owning:
            now = time.monotonic()
            if owner != self._owner and now - self._owner_asked_at < LEASE:
                raise Refusal(409, "used", "another query uses this spool; give each query a folder of its own (spool)")
            self._owner, self._owner_asked_at, self._owner_asked_on = owner, now, connection

    def touch(self) -> None:
        """Somebody asks."""
        self.asked_at = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds since somebody asked."""
        return time.monotonic() - self.asked_at


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, service: Service) -> None:
        self.service = service
        super().__init__((host, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60.0
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        self._answer({"/records": self._records})

    def do_POST(self) -> None:
        self._answer({"/advance": self._advance, "/leave": self._leave})

    def finish(self) -> None:
        self.server.service.closed(self)
        super().finish()

    def _answer(self, routes: dict[str, Callable[[dict[str, Any]], None]]) -> None:
        url = urlsplit(self.path)
        try:
            asked = self._asked(url.query)
            self._check_token()
            route = routes.get(url.path)
            if route is None:
                raise Refusal(404, "unknown", f"there is no {url.path}")
            self.server.service.touch()
            route(asked)
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)
        except (KeyError, TypeError, ValueError) as error:
            self._send(400, {"error": "bad request", "detail": f"{type(error).__name__}: {error}"})
        except Released as error:
            self._send(410, {"error": "released", "detail": str(error)})
        except Unknown as error:
            self._send(404, {"error": "unknown", "detail": str(error)})

    def _asked(self, query: str) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length") or 0)
        if size > LONGEST_REQUEST:
            self.close_connection = True
            raise Refusal(413, "too long", f"a request has at most {LONGEST_REQUEST} bytes")
        body = self.rfile.read(size)
        given = {name: int(values[0]) for name, values in parse_qs(query).items()}
        return {**given, **json.loads(body)} if body else given

    def _check_token(self) -> None:
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), self.server.service.token.encode()):
            raise Refusal(401, "token", "the token is not that of this spooler")

    def _advance(self, asked: dict[str, Any]) -> None:
        self._send(200, self.server.service.advance(asked, self))

    def _leave(self, asked: dict[str, Any]) -> None:
        self._send(200, {})
        self.server.service.leave()

    def _records(self, asked: dict[str, Any]) -> None:
        pieces = self.server.service.spool.slices(asked["first"], asked["next"])
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(sum(piece.end - piece.begin for piece in pieces)))
        self.end_headers()
        for piece in pieces:
            self._copy(piece)
        self.wfile.flush()

    def _copy(self, piece: Slice) -> None:
        with piece.path.open("rb") as file:
            file.seek(piece.begin)
            left = piece.end - piece.begin
            while left > 0 and (data := file.read(min(left, COPY))):
                self.wfile.write(data)
                left -= len(data)
        if left:
            raise ConnectionError(f"{piece.path} is shorter than it was")

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""
