"""The delivery store of a broker, opened as its settings say. Imported only where there is one: numpy and RocksDB take
a while."""

from __future__ import annotations

from pathlib import Path

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
        retention=retention_of(settings),
        cache=settings.cache_bytes,
    )


def retention_of(settings: StoreSettings) -> Retention:
    return Retention(
        _microseconds(settings.keep_for),
        settings.keep_bytes,
        _microseconds(settings.hard_keep_for),
        settings.hard_keep_bytes,
    )


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
