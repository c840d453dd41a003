"""The judge of what is stored is judged first: it acquits what is right, and finds any single fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater_lab.chaos.history import HEAD, Acknowledged, History, Note, Received, Sent, payload_of
from headwater_lab.chaos.stored import Row, StoredChecker, row_of

ORDERED = [
    Note(1, "p", "t/0", 1),
    Note(2, "p", "t/0", 2),
    Note(3, "p", "t/0", 1),
    Note(4, "q", "k/0", 1, retain=True),
    Note(5, "q", "k/0", 1, retain=True, size=0),
    Note(6, "p", "t/0", 2),
    Note(7, "w", "wills", 2, will=True),
    Note(8, "p", "t/1", 0),
    Note(9, "p", "t/1", 1),
]
"""All were acknowledged but the last, the will and the one with QoS 0; the third was sent twice."""


def history() -> History:
    made = History()
    for note in ORDERED:
        made.note(note)
        if not note.will:
            made.add(Sent(0, note.message))
    made.add(Sent(0, 3))
    for message in range(1, 7):
        made.add(Acknowledged(0, message))
    made.add(Received(0, "s", 2, "t/0", 2, False, False, True, None, 2))
    return made


def stored(*messages: int) -> list[Row]:
    """These, one behind the other."""
    notes = {note.message: note for note in ORDERED}
    return [
        row_of(position, note.topic, payload_of(note.message, note.size), note.qos, note.publisher)
        for position, note in enumerate((notes[message] for message in messages), 1)
    ]


RIGHT = (1, 2, 3, 4, 5, 6, 3, 7, 8)


def kinds(rows: list[Row], seen: list[Row] | None = None) -> set[str]:
    return {violation.kind for violation in StoredChecker(history(), rows, seen or []).check()}


@pytest.mark.parametrize("messages", [RIGHT, (*RIGHT, 9), (1, 2, 3, 4, 5, 6)])
def test_what_is_right_is_acquitted(messages: tuple[int, ...]) -> None:
    rows = stored(*messages)
    assert kinds(rows, rows) == set()


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        *(((*RIGHT[:at], *RIGHT[at + 1 :]), "not stored") for at in (0, 3, 4, 5)),
        *(((*RIGHT, again), "stored twice") for again in (1, 2, 4, 5, 6, 7, 8)),
        ((1, 2, 6, 3, 4, 5), ""),
        ((1, 6, 3, 4, 5, 2), "out of order"),
        ((3, 2, 1, 4, 5, 6), "out of order"),
    ],
)
def test_what_is_missing_or_there_too_often_or_too_late(messages: tuple[int, ...], kind: str) -> None:
    found = kinds(stored(*messages)) - {"changed"}
    assert found == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda row: row._replace(message=-1), "not ours"),
        (lambda row: row._replace(message=99), "not ours"),
        (lambda row: row._replace(topic="t/9"), "not ours"),
        (lambda row: row._replace(publisher="q"), "not ours"),
        (lambda row: row._replace(qos=0), "not ours"),
        (lambda row: row._replace(size=HEAD + 1), "not ours"),
        (lambda row: row._replace(position=70), "gap"),
        (lambda row: row._replace(position=1), "gap"),
    ],
)
def test_a_row_that_is_not_as_it_was_sent(change: Callable[[Row], Row], kind: str) -> None:
    rows = stored(*RIGHT)
    rows[1] = change(rows[1])
    assert kind in kinds(rows)


def test_what_was_seen_must_stay() -> None:
    rows = stored(*RIGHT)
    assert kinds(stored(1, 3, 2, 4, 5, 6, 3, 7, 8)) == {"changed"}  # a subscriber got message 2 at position 2
    assert kinds(rows, [rows[0]._replace(position=3)]) == {"changed"}
    assert kinds(rows, [rows[0]._replace(position=10)]) == {"changed"}
    assert kinds(rows, [rows[0]._replace(topic="t/1")]) == {"changed"}
