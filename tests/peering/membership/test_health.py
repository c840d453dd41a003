"""A node that is slow itself, or hears nothing from many, becomes patient; else it does not."""

from __future__ import annotations

from headwater.peering.membership.health import MAX_SCORE, LocalHealth


def test_late_ticks_make_patient_and_the_time_is_excused() -> None:
    health = LocalHealth(interval=1.0)
    assert health.tick(10.0) == 0.0
    assert health.tick(11.5) == 0.0
    assert health.patience == 1
    assert health.tick(71.5) == 59.0
    assert health.patience == 2
    for number in range(10):
        health.tick(100.0 + 5 * number)
    assert health.patience == 1 + MAX_SCORE


def test_ticks_in_time_bring_patience_back() -> None:
    health = LocalHealth(interval=1.0)
    for now in (0.0, 5.0, 10.0, 11.0):
        health.tick(now)
    assert health.patience == 2
    health.tick(12.0)
    assert health.patience == 1


def rounds(health: LocalHealth, silent: set[str], nodes: list[str], number: int = 10) -> None:
    for now in range(number):
        health.tick(float(now))
        for node in nodes:
            health.asked(node, float(now))
            if node not in silent:
                health.answered(node)


def test_missing_answers_of_many_make_patient() -> None:
    health = LocalHealth(interval=1.0)
    rounds(health, {"a", "b", "c"}, ["a", "b", "c", "d"])
    assert health.patience == 1 + MAX_SCORE
    for node in ("a", "b", "c"):
        health.dismiss(node)
    rounds(health, set(), ["d"])
    assert health.patience == 1


def test_missing_answers_of_few_do_not() -> None:
    health = LocalHealth(interval=1.0)
    rounds(health, {"a"}, ["a", "b", "c"])
    assert health.patience == 1
    # Of two, both may well be dead.
    health = LocalHealth(interval=1.0)
    rounds(health, {"a", "b"}, ["a", "b"])
    assert health.patience == 1


def test_questions_asked_before_a_pause_are_not_overdue_at_once() -> None:
    health = LocalHealth(interval=1.0)
    health.tick(0.0)
    for node in ("a", "b", "c"):
        health.asked(node, 0.0)
    health.tick(60.0)
    for node in ("a", "b", "c"):
        health.answered(node)
    health.tick(61.0)
    assert health.patience == 1
