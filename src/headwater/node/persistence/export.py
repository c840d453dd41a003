"""From the records of a store to the lines of an export (exchange.py).

What cannot be understood is left out and told of: an export is also the way to save what can be saved from a store that
a broker refuses.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

from headwater.node.persistence.backend import Backend
from headwater.node.persistence.exchange import FORMAT, content_of
from headwater.node.persistence.records import (
    DELIVERY,
    GROUP,
    MESSAGE,
    RECEIVED,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    delivery_in,
    message_in,
    number_in,
    number_key,
    subscription_in,
    will_in,
)
from headwater.node.persistence.schema import SCHEMA
from headwater.wire.errors import RemoteProtocolError

Line = dict[str, Any]
CANNOT_BE_READ = (ValueError, KeyError, IndexError, TypeError, struct.error, RemoteProtocolError)


class Export:
    """`left_out` is told of each record that cannot be understood. StorageError: the disk cannot be read."""

    def __init__(self, backend: Backend, left_out: Callable[[str], None]) -> None:
        self.backend = backend
        self.left_out = left_out
        self._clients: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        self._ids: dict[int, int] = {}
        """Of messages by their numbers, for those that have been written."""

    def lines(self) -> Iterator[Line]:
        yield {"kind": FORMAT, "schema": SCHEMA}
        yield from self._sessions()
        yield from self._deliveries()
        for key, value in self.backend.scan(RETAINED):
            yield from self._read("retained message", key, _retained, value)

    def _read(self, what: str, key: bytes, read: Callable[..., list[Line]], *arguments: object) -> list[Line]:
        try:
            return read(*arguments)
        except CANNOT_BE_READ as error:
            self.left_out(f"a {what} is left out, it cannot be understood: key {key!r}, {error!r}")
            return []

    def _sessions(self) -> Iterator[Line]:
        for key, value in self.backend.scan(SESSION):
            lines = self._read("session", key, _session, value)
            if not lines:
                continue
            client_id = self._clients[number_in(key)] = lines[0]["client_id"]
            yield from lines
            number = key[1:]
            for own, record in self.backend.scan(SUBSCRIPTION + number):
                yield from self._read("subscription", own, _subscription, client_id, own, record)
            for own, _ in self.backend.scan(RECEIVED + number):
                yield {"kind": "received", "client_id": client_id, "packet_id": int.from_bytes(own[9:], "big")}

    def _deliveries(self) -> Iterator[Line]:
        """Those of sessions first, then those of groups by name: an order that does not depend on numbers."""
        for key, value in self.backend.scan(GROUP):
            for group in self._read("shared group", key, _group, value):
                self._groups[number_in(key)] = group["name"]
        groups = sorted(self._groups.items(), key=lambda item: item[1])
        for number, _ in [*self._clients.items(), *groups]:
            for key, value in self.backend.scan(number_key(DELIVERY, number)):
                yield from self._read("queued message", key, self._delivery, number, value)

    def _delivery(self, owner: int, value: bytes) -> list[Line]:
        message, qos, retain, released, packet_id, _, identifiers, group = delivery_in(value)
        lines = []
        identity = self._ids.get(message)
        if identity is None:
            record = self.backend.get(number_key(MESSAGE, message))
            if record is None:
                raise KeyError(f"message {message}")
            identity = len(self._ids) + 1
            lines.append({"kind": "message", "id": identity, **content_of(message_in(record, 0.0))})
            self._ids[message] = identity
        line: Line = {"kind": "queued"}
        if owner in self._clients:
            line["client_id"] = self._clients[owner]
            if group:
                line["group"] = group
        else:
            line["group"] = self._groups[owner]
        line |= {"message": identity, "qos": qos}
        if retain:
            line["retain"] = True
        if identifiers:
            line["identifiers"] = identifiers
        if packet_id:
            line["packet_id"] = packet_id
        if released:
            line["released"] = True
        return [*lines, line]


def _session(value: bytes) -> list[Line]:
    fields: dict[str, Any] = json.loads(value)
    line: Line = {"kind": "session", "client_id": fields["id"]}
    for name, field in fields.items():
        if name not in ("id", "next") and not name.startswith("will"):
            line[name] = field
    if "next" in fields:
        line["next_id"] = fields["next"]
    if fields.get("will_only"):
        line["will_only"] = True
    if "will" not in fields:
        return [line]
    will: Line = {"kind": "will", "client_id": fields["id"], **content_of(will_in(fields, 0.0))}
    will["delay"] = fields["will_delay"]
    if "will_expiry" in fields:
        will["expiry"] = fields["will_expiry"]
    if "will_at" in fields:
        will["at"] = fields["will_at"]
    return [line, will]


def _subscription(client_id: str, key: bytes, record: bytes) -> list[Line]:
    name = key[9:].decode()
    found = subscription_in(name, record)
    line: Line = {"kind": "subscription", "client_id": client_id, "filter": name, "qos": found.qos}
    for option in ("no_local", "retain_as_published", "retain_handling", "identifier", "positions", "retained_pending"):
        if getattr(found, option):
            line[option] = getattr(found, option)
    if found.condition is not None:
        line["condition"] = found.condition.source
    return [line]


def _group(value: bytes) -> list[Line]:
    share, filter = json.loads(value)
    return [{"name": f"$share/{share}/{filter}"}]


def _retained(value: bytes) -> list[Line]:
    return [{"kind": "retained", **content_of(message_in(value, 0.0))}]


def as_text(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
