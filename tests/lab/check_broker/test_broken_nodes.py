"""The checker finds something: nodes of ours that are broken on purpose are all caught, an intact one is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.judges.court import judge
from headwater_lab.check_broker.promises import parse_promises
from headwater_lab.check_broker.report import Report, text
from headwater_lab.check_broker.run import Recorded, Settings, run
from tests.brokers import free_port, wait_until_listening
from tests.lab.check_broker.broken_node import BROKEN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent.parent
INTACT = "intact"
PROFILE, PROMISED = parse_promises("standard", 1)


@contextlib.contextmanager
def nodes(names: list[str]) -> Iterator[dict[str, int]]:
    """As plain Python; the port of each."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ports = {name: free_port() for name in names}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lab.check_broker.broken_node", name, str(port)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name, port in ports.items()
    ]
    try:
        for process, port in zip(processes, ports.values(), strict=True):
            wait_until_listening(process, port)
        yield ports
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def check_all(ports: dict[str, int]) -> dict[str, Recorded]:
    checks = [
        run(Settings((Target("127.0.0.1", port),), seconds=8.0, rate=15.0, settle=4.0, seed=7), lambda line: None)
        for port in ports.values()
    ]
    return dict(zip(ports, await asyncio.gather(*checks), strict=True))


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """All at once, which takes as long as one."""
    with nodes([INTACT, *BROKEN]) as ports:
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
