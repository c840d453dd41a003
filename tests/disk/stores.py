"""RocksDB in the folder `store` of a folder, opened as the packages above do it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocksdict import Rdict

from headwater.disk.rocks import new_batch, open_rocks, rocks_options

KILO = 1024


def opened(folder: Path, *, create: bool = True, write_buffer: int = 256 * KILO) -> Rdict:
    folder.mkdir(exist_ok=True)
    return open_rocks(folder / "store", create, rocks_options(write_buffer=write_buffer, cache=256 * KILO))


def written(db: Rdict, values: Mapping[bytes, bytes]) -> None:
    """In one batch."""
    batch = new_batch()
    for key, value in values.items():
        batch.put(key, value)
    db.write(batch)


def everything(db: Rdict) -> list[tuple[bytes, bytes]]:
    cursor = db.iter()
    cursor.seek_to_first()
    found = []
    while cursor.valid():
        found.append((cursor.key(), cursor.value()))
        cursor.next()
    cursor.status()
    return found
