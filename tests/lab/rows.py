"""Canned comparisons."""

from __future__ import annotations

from dataclasses import asdict

from headwater_lab.compare import MOSQUITTO, OURS, Row
from headwater_lab.load import Result
from headwater_lab.scenarios import Case, all_cases

MACHINE = {"date": "2030-01-02 03:04 UTC", "cpu": "Abacus 3", "command": "headwater broker --port {port}"}


def case(key: str) -> Case:
    return next(case for case in all_cases() if case.key == key)


def row(key: str, ours: list[float], mosquitto: list[float], **measured: float) -> Row:
    """A row of costs per round; `measured` goes into all of our samples."""
    theirs: list[Result] = [{"cost": cost, "rate": 1000.0, "p50": 90.0, "p99": 100.0} for cost in mosquitto]
    mine: list[Result] = [{"cost": cost, "rate": 5000.0, "p50": 80.0, "p99": 120.0, **measured} for cost in ours]
    return Row(asdict(case(key)), case(key).unit, {OURS: mine, MOSQUITTO: theirs})


def failed_row(key: str, error: str) -> Row:
    return Row(asdict(case(key)), case(key).unit, error=error)
