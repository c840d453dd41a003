"""From the lines of an export (exchange.py) to records in a data folder, all of them or none.

The lines are merged into a copy of the store (a checkpoint, which shares its files), which takes the place of the old
one when all is well. What is imported wins: a session takes the place of the one with the same client id with all that
belongs to it, a retained message of the one with the same topic. What waits for a shared group comes after what waits
there already. Numbers are given anew, above those that are there.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder
from headwater.disk.lock import locked
from headwater.message import Subscription
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.exchange import (
    FORMAT,
    KINDS,
    Header,
    Line,
    MessageLine,
    QueuedLine,
    ReceivedLine,
    RetainedLine,
    SessionLine,
    SubscriptionLine,
    WillLine,
)
from headwater.node.persistence.folder import (
    read_description,
    tidy,
    unused_name,
    write_description,
)
from headwater.node.persistence.records import (
    DELIVERY,
    GROUP,
    MESSAGE,
    RECEIVED,
    SESSION,
    SUBSCRIPTION,
    delivery_key,
    delivery_record,
    group_record,
    number_in,
    number_key,
    received_key,
    record_of,
    retained_key,
    subscription_key,
    subscription_record,
)
from headwater.node.persistence.rocks import RocksBackend
from headwater.node.persistence.schema import SCHEMA, open_folder
from headwater.routing.conditions.condition import condition_of
from headwater.routing.topics import SHARE_PREFIX, split_shared
from headwater.session.journaled import DurableDelivery, JournaledMessage

MOST_COMPLAINTS: Final = 20
BATCH: Final = 1000
"""Records that are written at once; nobody sees the copy before it is whole."""


class BadLines(StorageError):
    """Lines that cannot be used, by their numbers; nothing was imported."""


class Imported(NamedTuple):
    sessions: int
    subscriptions: int
    queued: int
    retained: int

    def __str__(self) -> str:
        return (
            f"{self.sessions:,} sessions, {self.subscriptions:,} subscriptions, {self.queued:,} messages for them, "
            f"{self.retained:,} retained messages"
        )


def import_lines(path: Path, lines: Iterable[bytes]) -> Imported:
    """Merge an export into the data folder, which is made if need be. Raises StorageError: nothing has changed."""
    open_folder(path).close()  # makes it, or brings it to our schema
    with locked(path):
        tidy(path)
        described = read_description(path)
        name = unused_name(path, "store")
        try:
            old = RocksBackend(path / described.store, create=False)
            try:
                old.checkpoint(path / name)
            finally:
                old.close()
            backend = RocksBackend(path / name, create=False)
            try:
                imported = Import(backend).run(lines)
            finally:
                backend.close()
            sync_folder(path / name)
        except BaseException:
            shutil.rmtree(path / name, ignore_errors=True)
            raise
        write_description(path, described._replace(store=name))
        tidy(path)
    return imported


class Import:
    """Of one export, into a store that nobody else sees before it is done."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._puts: list[tuple[bytes, bytes]] = []
        self._deletes: list[bytes] = []
        self._complaints: list[str] = []
        self._next_number = 1
        self._old_sessions: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._look_around()
        self._sessions: dict[str, int] = {}
        self._last_session: dict[str, Any] = {}
        self._messages: dict[int, tuple[int, int]] = {}
        """By their ids in the export: number, and the size they count with while they wait."""
        self._in_flight: set[tuple[str, int]] = set()
        self._first_for_group: dict[str, int] = {}
        self._line = 0
        self._subscriptions = self._queued = self._retained = 0
        self._take: dict[type[Line], Callable[[Any], None]] = {
            Header: self._header,
            SessionLine: self._session,
            WillLine: self._will,
            SubscriptionLine: self._subscription,
            ReceivedLine: self._received,
            MessageLine: self._message,
            QueuedLine: self._queue,
            RetainedLine: self._retain,
        }

    def run(self, lines: Iterable[bytes]) -> Imported:
        for text in lines:
            self._line += 1
            try:
                self._take_line(text)
            except ValueError as error:
                self._complain(self._line, _reason(error))
            if len(self._puts) + len(self._deletes) >= BATCH:
                self._flush()
        if self._line == 0:
            self._complain(1, f"there is nothing; an export begins with a line of the kind {FORMAT}")
        self._flush()
        self._check_groups()
        if self._complaints:
            raise BadLines("\n".join([*self._complaints, "nothing was imported"]))
        self.backend.sync()
        return Imported(len(self._sessions), self._subscriptions, self._queued, self._retained)

    def _take_line(self, text: bytes) -> None:
        try:
            found = json.loads(text.decode("utf-8-sig"))
        except RecursionError:
            raise ValueError("is nested too deeply") from None
        kind = found.get("kind") if isinstance(found, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"is not an object with a kind; kinds are {', '.join(KINDS)}")
        if (self._line == 1) != (kind == FORMAT):
            raise ValueError(f"the first line, and no other, is of the kind {FORMAT}")
        line = KINDS[kind].model_validate(found)
        self._take[type(line)](line)

    def _complain(self, line: int, text: str) -> None:
        self._complaints.append(f"line {line}: {text}")
        if len(self._complaints) == MOST_COMPLAINTS:
            raise BadLines("\n".join([*self._complaints, "there may be more; nothing was imported"]))

    # ---- what is there -----------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        for kind, place in ((SESSION, 1), (GROUP, 1), (MESSAGE, 1), (DELIVERY, 9)):
            for key, value in self.backend.scan(kind):
                number = number_in(key, place)
                self._next_number = max(self._next_number, number + 1)
                if kind == SESSION:
                    self._old_sessions[json.loads(value)["id"]] = number
                elif kind == GROUP:
                    self._groups["$share/{}/{}".format(*json.loads(value))] = number

    def _number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _flush(self) -> None:
        self.backend.write(self._puts, self._deletes)
        self._puts, self._deletes = [], []

    def _check_groups(self) -> None:
        """What waits for a group is for its members: a group without any must not be there."""
        names = {key[9:].decode() for key, _ in self.backend.scan(SUBSCRIPTION)}
        for name, number in self._groups.items():
            if name in names:
                continue
            if name in self._first_for_group:
                self._complain(self._first_for_group[name], f"no session has a subscription of the group {name!r}")
            self._deletes.append(number_key(GROUP, number))
            self._deletes += [key for key, _ in self.backend.scan(number_key(DELIVERY, number))]
        self._flush()

    # ---- lines -------------------------------------------------------------------------------------------------

    def _header(self, line: Header) -> None:
        if line.schema_ != SCHEMA:
            raise ValueError(f"the export has schema {line.schema_}, this headwater reads schema {SCHEMA}")

    def _session(self, line: SessionLine) -> None:
        if line.client_id in self._sessions:
            raise ValueError(f"the session {line.client_id!r} comes twice")
        old = self._old_sessions.get(line.client_id)
        if old is not None:
            self._deletes.append(number_key(SESSION, old))
            for kind in (SUBSCRIPTION, RECEIVED, DELIVERY):
                self._deletes += [key for key, _ in self.backend.scan(number_key(kind, old))]
        number = self._sessions[line.client_id] = self._number()
        fields: dict[str, Any] = {"id": line.client_id, "expiry": line.expiry}
        for name in ("user", "until"):
            if getattr(line, name) is not None:
                fields[name] = getattr(line, name)
        for name in ("will_only", "away"):
            if getattr(line, name):
                fields[name] = True
        if line.next_id is not None:
            fields["next"] = line.next_id
        self._last_session = fields
        self._puts.append((number_key(SESSION, number), _as_json(fields)))

    def _will(self, line: WillLine) -> None:
        fields = self._last_session
        if fields.get("id") != line.client_id or "will" in fields:
            raise ValueError(f"a will belongs behind its session, and the last one is not {line.client_id!r}")
        fields["will"] = base64.b64encode(record_of(line.message(), 0.0)).decode()
        fields["will_delay"] = line.delay
        if line.expiry is not None:
            fields["will_expiry"] = line.expiry
        if line.at is not None:
            fields["will_at"] = line.at
        self._puts.append((number_key(SESSION, self._sessions[line.client_id]), _as_json(fields)))

    def _subscription(self, line: SubscriptionLine) -> None:
        subscription = Subscription(
            line.filter,
            line.qos,
            no_local=line.no_local,
            retain_as_published=line.retain_as_published,
            retain_handling=line.retain_handling,
            identifier=line.identifier,
            positions=line.positions,
        )
        if line.condition is not None:
            subscription.condition = condition_of(line.condition)
        subscription.retained_pending = line.retained_pending and not line.filter.startswith(SHARE_PREFIX)
        key = subscription_key(self._session_of(line.client_id), line.filter)
        self._puts.append((key, subscription_record(subscription)))
        self._subscriptions += 1

    def _received(self, line: ReceivedLine) -> None:
        self._puts.append((received_key(self._session_of(line.client_id), line.packet_id), b""))

    def _message(self, line: MessageLine) -> None:
        if line.id in self._messages:
            raise ValueError(f"the message {line.id} comes twice")
        number = self._number()
        message = line.message()
        self._messages[line.id] = number, message.size()
        self._puts.append((number_key(MESSAGE, number), record_of(message, 0.0)))

    def _queue(self, line: QueuedLine) -> None:
        if line.message not in self._messages:
            raise ValueError(f"there is no message {line.message} before it")
        message, size = self._messages[line.message]
        if line.client_id is None:
            owner, group = self._group(line.group or ""), ""
        else:
            owner, group = self._session_of(line.client_id), line.group or ""
            self._check_packet_id(line.client_id, line.packet_id)
        entry = DurableDelivery(self._number(), owner, JournaledMessage(message, None, b"", b"", 0, ""), line.qos)
        entry.retain = line.retain
        entry.identifiers = line.identifiers or None
        entry.released = line.released
        entry.packet_id = line.packet_id or 0
        record = delivery_record(entry, 0 if line.packet_id else size, group)
        self._puts.append((delivery_key(owner, entry.number), record))
        self._queued += 1

    def _retain(self, line: RetainedLine) -> None:
        message = line.message()
        message.retain = True
        self._puts.append((retained_key(message.topic), record_of(message, 0.0)))
        self._retained += 1

    def _session_of(self, client_id: str) -> int:
        number = self._sessions.get(client_id)
        if number is None:
            raise ValueError(f"there is no session {client_id!r} before it")
        return number

    def _group(self, name: str) -> int:
        self._first_for_group.setdefault(name, self._line)
        number = self._groups.get(name)
        if number is None:
            number = self._groups[name] = self._number()
            share, filter = split_shared(name)
            assert share is not None
            self._puts.append((number_key(GROUP, number), group_record(share, filter)))
        return number

    def _check_packet_id(self, client_id: str, packet_id: int | None) -> None:
        if packet_id is not None:
            if (client_id, packet_id) in self._in_flight:
                raise ValueError(f"packet id {packet_id} of {client_id!r} comes twice")
            self._in_flight.add((client_id, packet_id))


def _as_json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _reason(error: ValueError) -> str:
    """One line, without what pydantic adds for programmers."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not in UTF-8 (byte {error.start + 1})"
    if not isinstance(error, ValidationError):
        return f"is not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        text = "there is no such field"
    return f"{where}: {text}" if where else text
