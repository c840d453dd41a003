"""`headwater repair`: a data folder whose logs are damaged with whole records behind it (disk/repair.py).

    DIR/damaged-TIME/sessions/…, messages/…    the logs as they were found; nobody reads or deletes them

What is whole is kept. With sessions, what depends on something that is lost goes, too: a delivery whose message is
gone, a packet id of a session that is gone. What came to its end in a lost batch has not ended: such a message may be
delivered again, also with QoS 2. Messages of the delivery store: store/mending.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from headwater.disk.lock import locked
from headwater.disk.repair import Damage, examine, salvage
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.folder import MESSAGES, NOT_A_COPY, read_description, tidy, unused_name
from headwater.node.persistence.records import DELIVERY, MESSAGE, RECEIVED, SESSION, delivery_in, number_in
from headwater.node.persistence.rocks import RocksBackend

SESSIONS: Final = "sessions"


class Repair(NamedTuple):
    """Lines for people: what is damaged, and what was done about it or would be lost; `kept` is where the damaged files
    are, if there are some."""

    damages: list[str]
    lines: list[str]
    kept: Path | None = None


def look_at(folder: Path) -> Repair:
    """What a repair would find; nothing changes. Raises StorageError, InUse if somebody uses the folder."""
    with locked(folder):
        damages = _told(SESSIONS, examine(folder / read_description(folder).store))
        lines = []
        if _has_messages(folder):
            from headwater.store.mending import examine_messages

            found, lost = examine_messages(folder / MESSAGES / "db")
            damages += _told(MESSAGES, found)
            lines = [f"{MESSAGES}: lost would be {lost or 'no message, as far as is known'}"] if found else []
        return Repair(damages, lines)


def repair(folder: Path) -> Repair:
    """Keep what is whole, and put the damaged files aside. Who is cut off does it again. Raises StorageError."""
    found = look_at(folder)
    with locked(folder):
        tidy(folder)
        (folder / NOT_A_COPY).unlink(missing_ok=True)  # what is lost, other nodes may have had
        kept = folder / unused_name(folder, "damaged")
        if found.damages:
            kept.mkdir(mode=0o700)
        lines = [f"{SESSIONS}: {_repair_sessions(folder / read_description(folder).store, kept / SESSIONS)}"]
        if _has_messages(folder):
            from headwater.store.mending import repair_messages

            lines.append(f"{MESSAGES}: {repair_messages(folder / MESSAGES, kept / MESSAGES)}")
        return Repair(found.damages, lines, kept if found.damages else None)


def _has_messages(folder: Path) -> bool:
    return (folder / MESSAGES / "db").is_dir()


def _told(what: str, damages: list[Damage]) -> list[str]:
    return [f"{what}: {each}" for each in damages]


def _repair_sessions(store: Path, kept: Path) -> str:
    if examine(store):
        salvage(store, kept)
    backend = RocksBackend(store, create=False, repaired=True)
    try:
        return _without_orphans(backend)
    finally:
        backend.close()


def _without_orphans(backend: Backend) -> str:
    messages = {number_in(key) for key, _ in backend.scan(MESSAGE)}
    sessions = {number_in(key) for key, _ in backend.scan(SESSION)}
    deliveries = [key for key, value in backend.scan(DELIVERY) if delivery_in(value)[0] not in messages]
    received = [key for key, _ in backend.scan(RECEIVED) if number_in(key) not in sessions]
    if not deliveries and not received:
        return "everything that is there belongs together"
    backend.write([], [*deliveries, *received])
    backend.sync()
    return f"removed {len(deliveries)} deliveries whose messages are lost, {len(received)} packet ids of lost sessions"
