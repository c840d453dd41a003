from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.proxy.fabric import Mosquitto
from tests.node.transports.serving import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[list[Mosquitto]]:
    """Three home brokers; they are started when they are looked at."""
    made = [Mosquitto(tmp_path / f"home{number}") for number in range(3)]
    yield made
    for each in made:
        each.stop()
