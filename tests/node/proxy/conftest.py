from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headwater.node.proxy import short_way
from tests.node.extension import built
from tests.node.proxy.fabric import Mosquitto
from tests.node.proxy.relaying import Way
from tests.node.transports.serving import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def passing(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """passing.c, compiled."""
    return built(Path(short_way.__file__).with_name("passing.c"), tmp_path_factory.mktemp("extension"))


@pytest.fixture(scope="module", params=["own way", "short way"])
def way(request: pytest.FixtureRequest) -> Way:
    """How bytes go where no packet matters."""
    return None if request.param == "own way" else request.getfixturevalue("passing").Passages


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[list[Mosquitto]]:
    """Three home brokers; they are started when they are looked at."""
    made = [Mosquitto(tmp_path / f"home{number}") for number in range(3)]
    yield made
    for each in made:
        each.stop()
