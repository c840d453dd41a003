from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.store.extract import Extraction
from headwater.store.retention import Retention
from headwater.store.store import Store
from tests.store.kinds import Kind
from tests.store.messages import MICROSECONDS


class Stores:
    """Opens stores in folders of a test, and closes them in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[Store] = []

    def open(
        self,
        kind: Kind,
        name: str = "store",
        *,
        id: str | None = None,
        extraction: Extraction = MICROSECONDS,
        retention: Retention | None = None,
    ) -> Store:
        store = kind.open(self.folder / name, id=id, extraction=extraction, retention=retention)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close()
