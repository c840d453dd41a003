from __future__ import annotations

import json

import pytest

from headwater.client import PingSender, StatusPingSender


def report(sender: StatusPingSender) -> dict[str, float]:
    said: dict[str, float] = json.loads(sender.payload())
    return said


def test_a_report_is_the_papers() -> None:
    sender = StatusPingSender()
    sender.waiting = 3
    for seconds in (0.010, 0.020):
        sender.processed(seconds)
    assert sender.payload() == b'{"msgsInQueue": 3, "processingTimePerMsg": 15.0}'


def test_counters_restart_after_each_report() -> None:
    sender = StatusPingSender()
    sender.processed(0.010)
    report(sender)
    assert report(sender) == {"msgsInQueue": 0, "processingTimePerMsg": 0.0}
    sender.processed(0.004)
    assert report(sender)["processingTimePerMsg"] == 4.0


def test_it_is_due_when_the_queue_has_changed_by_two_since_the_last_report() -> None:
    sender = StatusPingSender()
    sender.waiting = 1
    assert not sender.is_due()
    sender.waiting = 2
    assert sender.is_due()
    report(sender)
    assert not sender.is_due()
    sender.waiting = 1
    assert not sender.is_due()
    sender.waiting = 0
    assert sender.is_due()


def test_it_is_due_when_the_processing_time_is_new_or_has_changed_by_a_factor_of_two() -> None:
    sender = StatusPingSender()
    sender.processed(0.010)
    assert sender.is_due()
    report(sender)
    report(sender)  # nothing processed: no news
    sender.processed(0.019)
    assert not sender.is_due()
    sender.processed(0.021)
    assert sender.is_due()
    report(sender)
    sender.processed(0.010)
    assert sender.is_due()


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_is_longer_than_nothing(interval: float) -> None:
    with pytest.raises(ValueError):
        PingSender(interval)
