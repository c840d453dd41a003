"""The delivery store of a broker, opened as its settings say. Imported only where there is one: numpy and RocksDB take
a while."""

from __future__ import annotations

from pathlib import Path

from headwater.disk.room import disk_size, room_for_messages
from headwater.node.delivery.settings import StoreSettings
from headwater.node.persistence.folder import MESSAGES
from headwater.store.disk_store import DiskStore
from headwater.store.extract import Extraction
from headwater.store.retention import Retention


def open_store(data: Path, settings: StoreSettings) -> DiskStore:
    """Raises StorageError, which says what to do."""
    return DiskStore(
        data / MESSAGES,
        id=settings.id or None,
        extraction=Extraction(settings.time_paths, settings.value_paths, settings.time_unit),
        retention=retention_of(settings, data),
        cache=settings.cache_bytes,
        has_history=bool(settings.history.url),
    )


def retention_of(settings: StoreSettings, data: Path) -> Retention:
    """`data` is on the disk that messages take up."""
    most = room_for_messages(disk_size(data)) if settings.keep_bytes is None else settings.keep_bytes
    return Retention(
        _microseconds(settings.keep_for or None),
        most or None,
        _microseconds(settings.hard_keep_for),
        settings.hard_keep_bytes,
        _microseconds(settings.history.after if settings.history.url else None),
    )


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
