"""The checker finds something: nodes of ours that are broken on purpose are all caught, an intact one is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.fleet.process import RunningBroker, free_port
from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.judges.court import judge
from headwater_lab.check_broker.promises import parse_promises
from headwater_lab.check_broker.report import Report, text
from headwater_lab.check_broker.run import Recorded, Settings, run
from tests.lab.check_broker.broken_node import BROKEN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent.parent
INTACT = "intact"
PROFILE, PROMISED = parse_promises("standard", 1)


@contextlib.contextmanager
def nodes(names: list[str], folder: Path) -> Iterator[dict[str, int]]:
    """As plain Python; the port of each."""
    ports = {name: free_port() for name in names}
    started: list[RunningBroker] = []
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
            patch.chdir(ROOT)
            for name, port in ports.items():
                words = [sys.executable, "-m", "tests.lab.check_broker.broken_node", name, str(port)]
                started.append(RunningBroker(words, port, folder / f"{port}.log"))
        yield ports
    finally:
        for broker in started:
            broker.stop()


async def check_all(ports: dict[str, int]) -> dict[str, Recorded]:
    checks = [
        run(Settings((Target("127.0.0.1", port),), seconds=8.0, rate=15.0, settle=4.0, seed=7), lambda line: None)
        for port in ports.values()
    ]
    return dict(zip(ports, await asyncio.gather(*checks), strict=True))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """All at once, which takes as long as one."""
    with nodes([INTACT, *BROKEN], tmp_path_factory.mktemp("nodes")) as ports:
        recorded = asyncio.run(check_all(ports))
    return {name: Report(found, PROFILE, PROMISED, judge(found.history)) for name, found in recorded.items()}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_node_is_caught(how: str, reports: dict[str, Report]) -> None:
    report = reports[how]
    broken = {verdict.promise for verdict in report.verdicts if verdict.findings and verdict.promise in PROMISED}
    assert BROKEN[how][1] in broken, text(report)


def test_an_intact_one_is_not(reports: dict[str, Report]) -> None:
    report = reports[INTACT]
    assert report.violations == 0, text(report)
    looked_at = {verdict.promise: verdict.looked_at for verdict in report.verdicts}
    checked = {BROKEN[how][1] for how in BROKEN} | {"retained-converges"}
    assert {promise for promise in checked if looked_at[promise] == 0} == set()  # type: ignore[index]
