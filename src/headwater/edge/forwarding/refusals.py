"""What to do with a message that the target does not take, by its reason code (MQTT 5.0; 3.1.1 has no words for it).

Some reasons are the message's own and will not change: it is given up at once. All others may go away by themselves or
by somebody's hand (a quota, a right that was forgotten): the message is sent again, later and later, for `retry_for`
seconds. Others go on meanwhile; a message that is refused does not hold up those behind it.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.store.entry import Entry, iso

TOPIC_NAME_INVALID: Final = 0x90
PACKET_TOO_LARGE: Final = 0x95
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
FOR_GOOD: Final = frozenset((TOPIC_NAME_INVALID, PACKET_TOO_LARGE, PAYLOAD_FORMAT_INVALID, RETAIN_NOT_SUPPORTED))

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0


def wait(attempts: int) -> float:
    """Seconds until a message is sent again that was refused so often."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts - 1, 30))


class GivenUp(NamedTuple):
    entry: Entry
    reason: int
    text: str


class DeadLetters:
    """A file of what was given up, one line of JSON for each; above `most` bytes it becomes FILE.1, in place of the one
    before. `path` None: what is given up is only counted."""

    def __init__(self, path: Path | None, most: int) -> None:
        self._path = path
        self._most = most

    def write(self, store: str, some: Sequence[GivenUp]) -> None:
        """On disk when it returns. Raises StorageError."""
        path = self._path
        if path is None or not some:
            return
        lines = b"".join(_line(store, each) for each in some)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size + len(lines) > self._most:
                path.replace(path.with_name(path.name + ".1"))
            with open(path, "ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _line(store: str, given_up: GivenUp) -> bytes:
    entry, reason, text = given_up
    try:
        payload = {"payload": entry.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": b64encode(entry.payload).decode()}
    fields = {"position": f"{store}:{entry.position}", "topic": entry.topic, "arrival": iso(entry.arrival)}
    return json.dumps({**fields, "reason": reason, "text": text, **payload}, ensure_ascii=False).encode() + b"\n"
