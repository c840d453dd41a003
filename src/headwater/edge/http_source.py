"""The admin API of a node whose store is taken over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from headwater.edge.taking_over import SourceAway, SourceRefuses

PATIENCE: Final = 120.0
"""Seconds without a word: a copy of a large store is made, and its new files are read, before it is answered."""
CHUNK: Final = 1 << 20
LARGEST: Final = 64 << 20
"""Bytes of an answer that is no file."""
PATH: Final = "/v1/hand-over"


class HttpSource:
    """`url` is the node's admin API, such as `http://old:18830`."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, order: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if order is None else json.dumps(order).encode()
        answer = bytearray()
        for part in self._read(path, data):
            answer += part
            if len(answer) > LARGEST:
                break
        try:
            found = json.loads(answer) if len(answer) <= LARGEST else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SourceRefuses(f"{self.url} answers something else; is it the admin API of a node?")
        return found

    def fetch(self, hand_over: str, name: str) -> Iterator[bytes]:
        return self._read(f"/{hand_over}/file?{urlencode({'name': name})}", None)

    def _read(self, path: str, data: bytes | None) -> Iterator[bytes]:
        request = Request(f"{self.url}{PATH}{path}", data, self._headers)
        try:
            with urlopen(request, timeout=PATIENCE) as answer:
                while found := answer.read(CHUNK):
                    yield found
        except HTTPError as error:
            with error:
                raise SourceRefuses(f"{self.url} answers {error.code}: {_detail(error.read(10_000))}") from None
        except (URLError, OSError) as error:
            raise SourceAway(f"{self.url} does not answer: {getattr(error, 'reason', error)}") from None


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
