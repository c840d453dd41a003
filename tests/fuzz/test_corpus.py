"""Scripts that `scripts/bench fuzz --coverage` found worth keeping, played again with all that must hold checked."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from headwater_lab.fuzz_coverage import first_scripts, mutated, read
from headwater_lab.fuzz_script import LONGEST, Script, Step, play
from tests.fuzz.invariants import check

CORPUS = read(Path(__file__).with_name("corpus.txt"))
PORTIONS = 10


def test_there_is_a_corpus() -> None:
    assert len(CORPUS) > 50


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_what_was_found_before(portion: int) -> None:
    for number, data in list(enumerate(CORPUS))[portion::PORTIONS]:
        try:
            play(data, check)
        except Exception as error:
            raise AssertionError(f"script {number} of the corpus") from error


def test_a_script_is_what_was_written() -> None:
    script = Script(5, [Step(0, 0, 0, b"hello"), Step(1, 1, 7), Step(3, 3, 15), Step(2, 2, 0), Step(0, 0, 3, b"")])
    assert Script.from_bytes(script.to_bytes()) == script


def test_any_bytes_are_a_script() -> None:
    random = Random(1)
    for size in range(200):
        data = random.randbytes(size)
        once = Script.from_bytes(data)
        assert Script.from_bytes(once.to_bytes()) == once
        play(data, check)


def test_damaged_scripts_are_scripts_of_bounded_length() -> None:
    random = Random(2)
    scripts = first_scripts(random, 10)
    for _ in range(300):
        changed = mutated(random, random.choice(scripts), random.choice(scripts))
        assert len(changed) <= LONGEST
        scripts.append(changed)
    assert len(set(scripts)) > 200
