from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.peer import drop_all

from .serving import Authority, close_all


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def another_authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "another")


@pytest.fixture(autouse=True)
def _no_connection_outlives_its_test() -> Iterator[None]:
    yield
    drop_all()
    close_all()
