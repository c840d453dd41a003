"""The contenders are alike in what they keep: only then can their speed be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater_lab import store_inside
from headwater_lab.store_contenders import CONTENDERS, Contender, size_of
from headwater_lab.store_inside import Question, questions
from headwater_lab.store_messages import HOUR, START, readings, topic_of
from headwater_lab.store_proof import Proof

MESSAGES = 25_000


@pytest.mark.parametrize("name, make", CONTENDERS.items())
def test_a_contender_gives_back_what_it_was_given(name: str, make: Callable[[Path], Contender], tmp_path: Path) -> None:
    said: list[str] = []
    proof = Proof()
    contender = make(tmp_path / name)
    cost = store_inside.fill(contender, readings(MESSAGES, 1), 7_000, proof, said.append)
    assert cost.rows == MESSAGES and cost.seconds > 0 and len(said) == 1
    returned = proof.returned()
    assert store_inside.read(contender, returned).rows == MESSAGES
    assert returned.differences() == []
    asked = [Question(topic_of(42), START * 1000, START * 1000 + HOUR), *questions(3, MESSAGES, 1)]
    early = Question(topic_of(42), START * 1000, START * 1000 + 1_000_000)
    taken, answers = store_inside.ask(contender, [*asked, early])
    assert len(taken) == 5 and [len(answer) for answer in answers[:1]] == [3]
    expected = [
        (number * 10_000 + 43, int(each.time[42]), float(each.value[42]), each.payload[42])
        for number, each in enumerate(readings(MESSAGES, 1))
    ]
    assert answers[0] == expected
    assert answers[4] == expected[:1]
    contender.close()
    assert size_of(contender.folder) > 0
