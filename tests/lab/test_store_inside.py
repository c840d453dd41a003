"""How contenders are measured in process."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.store.intake import Taken
from headwater_lab import store_inside
from headwater_lab.store_contenders import Contender
from headwater_lab.store_inside import Cost, quantile, questions
from headwater_lab.store_messages import DEVICES, HOUR, PERIOD, START, publisher_of, readings, topic_of


class Listening(Contender):
    def __init__(self) -> None:
        super().__init__(Path())
        self.heard: list[Taken | str] = []

    def write(self, taken: Taken) -> None:
        self.heard.append(taken)

    def catch_up(self) -> None:
        self.heard.append("catch up")

    def finish(self) -> None:
        self.heard.append("finish")


def test_messages_are_written_in_groups_that_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_inside, "AT_ONCE", 100)
    contender = Listening()
    cost = store_inside.fill(contender, readings(250, 1, 30), 40, None, lambda text: None)
    groups = [each for each in contender.heard if isinstance(each, Taken)]
    assert [(each.first, len(each)) for each in groups] == [(at, min(40, 251 - at)) for at in range(1, 250, 40)]
    assert [each if isinstance(each, str) else "" for each in contender.heard] == [
        *["", "", "", "catch up"] * 2,
        *["", "catch up", "finish"],
    ]
    assert cost.rows == 250
    taken = groups[1]
    assert taken.topics[0] == topic_of(10).encode() and taken.publishers[0] == publisher_of(10)
    payloads = [payload for each in groups for payload in each.payloads]
    assert payloads == [payload for each in readings(250, 1, 30) for payload in each.payload]


def test_costs() -> None:
    assert Cost(1000, 0.5, 0.25).rate == 2000
    assert Cost(1000, 0.5, 0.25).microseconds == 250


@pytest.mark.parametrize("messages", [1_000_000, 10_000_000])
def test_questions_are_within_the_time_of_the_messages(messages: int) -> None:
    asked = questions(200, messages, 1)
    last = START * 1000 + messages // DEVICES * PERIOD * 1000
    assert len({each.topic for each in asked}) > 150
    assert all(each.end - each.start == HOUR for each in asked)
    assert all(START * 1000 <= each.start < max(START * 1000 + 1, last - HOUR) for each in asked)
    assert (len({each.start for each in asked}) > 150) == (messages == 10_000_000)
    assert asked == questions(200, messages, 1)


@pytest.mark.parametrize("share, expected", [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_quantiles(share: float, expected: float) -> None:
    assert quantile([float(value) for value in range(100, 0, -1)], share) == expected
