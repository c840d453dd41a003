"""Reads what is in the delivery store by REST while the broker lives: what it was shown must never change.

A thread of its own for each life of the broker; it has ended before the next one is forked.
"""

from __future__ import annotations

import http.client
import json
import threading
from typing import Final

from headwater_lab.chaos.stored import Row, row_of

PAUSE: Final = 0.02
PATIENCE: Final = 5.0
AGAIN: Final = 200
"""Positions that are read once more after a restart."""


class Watching:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._after = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, port: int) -> None:
        self._over.clear()
        self._after = max(0, self._after - AGAIN)
        self._thread = threading.Thread(target=self._read_on, args=(port,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The broker is dead, so no answer takes long."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _read_on(self, port: int) -> None:
        while not self._over.wait(PAUSE):
            try:
                self._read(port)
            except (OSError, http.client.HTTPException, ValueError):
                continue  # it does not listen yet, or not any more, or was killed in the middle of a line

    def _read(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", f"/v1/messages?after={self._after}&format=ndjson")
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise ValueError(answer.status)
            for line in answer:
                found = json.loads(line)
                payload = found["payload"].encode()
                self.rows.append(row_of(found["position"], found["topic"], payload, found["qos"], found["publisher"]))
                self._after = found["position"]
        finally:
            connection.close()
