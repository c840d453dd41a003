"""What is advised, when it is worth saying, and that it is the same whenever a batch is done; without Spark."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.node.advice.document import read_advice
from headwater.pipeline.operations.advice import Basis, Proposal, Row, newest, row_of, worth_saying
from headwater.pipeline.operations.sender import Sender, topic_of
from headwater.pipeline.operations.settings import Settings
from headwater.pipeline.operations.splits import propose
from headwater.pipeline.operations.trees import Busy, Crowd, deserving
from headwater.pipeline.operations.weights import Figures, _differs, recommend

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
GROUP = "$share/workers/jobs/#"


def basis(number: int = 100, minutes: float = 0.0) -> Basis:
    return Basis({"one": number - 40, "two": 40}, NOON + timedelta(minutes=minutes))


def figures(member: str, processing: float, backlog: float = 0.0, group: str = GROUP, minutes: int = 10) -> Figures:
    return Figures(group, member, minutes, 600, backlog, processing)


def weights(*found: Figures, **settings: Any) -> dict[str, float]:
    [proposal] = recommend(found, Settings(**settings))
    assert isinstance(proposal.content, dict)
    return proposal.content


# ---- weights -----------------------------------------------------------------------------------------------------


def test_weights_are_in_proportion_to_what_members_can_do() -> None:
    made = weights(figures("a", 0.025), figures("b", 0.025), figures("c", 0.05))
    assert made["a"] == made["b"] == pytest.approx(2 * made["c"], rel=0.01)
    assert math.prod(made.values()) == pytest.approx(1.0, rel=0.01)


def test_what_waits_is_taken_off() -> None:
    """In 900 s each can do 9,000; one has 4,500 of them already."""
    made = weights(figures("a", 0.1), figures("late", 0.1, backlog=4500.0))
    assert made["a"] == pytest.approx(2 * made["late"], rel=0.01)
    made = weights(figures("a", 0.1), figures("late", 0.1, backlog=1e9), most_weight=10.0)
    assert made["a"] == pytest.approx(10 * made["late"], rel=0.01), "it still shows what it can"


def test_weights_are_bounded() -> None:
    made = weights(figures("a", 0.001), figures("b", 1.0), most_weight=2.0)
    assert made == {"a": 2.0, "b": 0.5}


def test_a_group_needs_two_members() -> None:
    assert recommend([figures("a", 0.1), figures("b", 0.1, group="$share/other/x")], Settings()) == []


def test_why_is_in_words_and_figures() -> None:
    [proposal] = recommend([figures(f"m{number}", 0.01 * (number + 1)) for number in range(8)], Settings())
    assert "m0 takes 10 ms for a message and has 0 under way: 2.8" in proposal.why
    assert proposal.why.startswith("by 10 minutes or more: ")
    assert proposal.why.endswith("; and 3 more")


def test_a_document_has_room_for_those_that_matter_most() -> None:
    many = [figures(f"{number:03}" + "x" * 500, 0.1) for number in range(300)]
    made = weights(*many, figures("slow", 0.4))
    assert "slow" in made and len(made) < 100
    assert len(row_of(Proposal("weights", GROUP, made, ""), basis(), 900)["advice"].encode()) < 65_536


# ---- when it is worth saying -------------------------------------------------------------------------------------


def said(content: dict[str, float], last: list[Row], at: Basis, life: float = 900.0) -> list[Row]:
    settings = Settings(life=life)
    return worth_saying(
        [Proposal("weights", GROUP, content, "why")], newest(last, "weights"), at, life, _differs(settings)
    )


def test_small_changes_are_not_worth_saying_and_large_ones_are() -> None:
    assert said({"a": 1.05, "b": 0.96}, [], basis()) == []
    first = said({"a": 1.4, "b": 0.7}, [], basis())
    assert len(first) == 1
    assert said({"a": 1.5, "b": 0.67}, first, basis(101, 1)) == []
    assert len(said({"a": 1.7, "b": 0.6}, first, basis(101, 1))) == 1
    assert len(said({"a": 1.0, "b": 1.0}, first, basis(101, 1))) == 1, "that it is even again is news"
    assert len(said({"a": 1.4}, first, basis(101, 1))) == 1, "somebody has gone"


def test_it_is_renewed_before_it_ends() -> None:
    first = said({"a": 1.4, "b": 0.7}, [], basis())
    assert said({"a": 1.4, "b": 0.7}, first, basis(101, 7)) == []
    [again] = said({"a": 1.4, "b": 0.7}, first, basis(102, 8))
    assert again["number"] == 102
    assert len(said({"a": 1.4, "b": 0.7}, [*first, again], basis(103, 9))) == 0
    assert len(said({"a": 1.4, "b": 0.7}, first, basis(103, 60))) == 1, "it has ended"


def test_that_there_is_nothing_to_say_is_not_renewed() -> None:
    first = said({"a": 1.4, "b": 0.7}, [], basis())
    even = said({"a": 1.0, "b": 1.0}, first, basis(101, 1))
    assert said({"a": 1.0, "b": 1.0}, [*first, *even], basis(102, 10)) == []


def test_the_newest_counts_in_whatever_order_they_come() -> None:
    rows = [row_of(Proposal("weights", GROUP, {}, ""), basis(number), 900) for number in (101, 103, 102)]
    assert newest(rows, "weights")[GROUP]["number"] == 103
    assert newest(rows, "split") == {}


# ---- the same whenever it is made --------------------------------------------------------------------------------


def test_a_batch_that_is_done_again_says_the_same() -> None:
    found = [figures("a", 0.02), figures("b", 0.05)]
    rows = [
        row_of(recommend(order, Settings())[0], Basis(positions, NOON), 900)
        for order, positions in ((found, {"one": 60, "two": 40}), (found[::-1], {"two": 40, "one": 60}))
    ]
    assert rows[0] == rows[1]
    assert rows[0]["number"] == 100


@pytest.mark.parametrize("positions", [{}, {"one": 0}, {"one": -1, "two": 5}, {"one": 1.5}, {"one": True}])
def test_what_are_no_positions(positions: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="are no positions"):
        Basis(positions, NOON)


def test_a_time_without_a_zone() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Basis({"one": 1}, datetime(2026, 1, 31))


@pytest.mark.parametrize("kind", ["weights", "split"])
def test_nodes_can_read_it(kind: str) -> None:
    """The two sides share no code, only this."""
    proposal = (
        recommend([figures("a", 0.02), figures("b", 0.05)], Settings())[0]
        if kind == "weights"
        else propose("4f1c", {"a/1": 5.0, "a/2": 6.0}, ["#"], Settings())
    )
    assert proposal is not None
    row = row_of(proposal, basis(), 900)
    advice = read_advice(topic_of(kind, proposal.subject), row["advice"].encode(), NOON.timestamp() + 5, 86_400.0)
    assert (advice.kind, advice.subject, advice.number, advice.why) == (kind, proposal.subject, 100, proposal.why)
    assert advice.expires == NOON.timestamp() + 900
    assert advice.weights == (proposal.content if kind == "weights" else {})
    assert [list(part) for part in advice.parts] == (proposal.content if kind == "split" else [])


# ---- splits and trees --------------------------------------------------------------------------------------------


def test_why_a_split() -> None:
    proposal = propose("4f1c", {f"a/{number}": 1.0 for number in range(8)}, ["a/#"], Settings(parts=2))
    assert proposal is not None
    assert proposal.why.startswith("the heaviest part has 1 times the mean load: 50 % by ")


def test_nothing_to_split() -> None:
    assert propose("4f1c", {}, ["#"], Settings()) is None
    assert propose("4f1c", {"a": 1.0}, ["a"], Settings()) is None


def test_busy_topics_with_members_that_stay_deserve_a_tree() -> None:
    busy = [Busy("jobs/new", 600.0, 2), Busy("jobs/old", 40.0, 1), Busy("alone", 1e6, 1), Busy("quiet", 10.0, 50)]
    crowds = [Crowd("$share/workers/jobs/#", 4, 3.6)]
    found = deserving(busy, crowds, Settings())
    assert [each.subject for each in found] == ["jobs/new", "jobs/old"]
    assert found[0].content == {"messages_per_minute": 600.0, "members": 6, "churn": 0.1}
    assert found[0].why == "600 messages a minute, 6 members, of whom 10 % come and go"
    assert deserving(busy, [Crowd("$share/workers/jobs/#", 4, 1.0)], Settings()) == []
    assert len(deserving(busy, crowds, Settings(most_trees=1))) == 1


# ---- sending -----------------------------------------------------------------------------------------------------


def test_rows_are_sent_as_they_are_unless_they_have_expired() -> None:
    sent: list[tuple[str, bytes, float]] = []
    sender = Sender(lambda *each: sent.append(each), lambda: NOON.timestamp() + 100)
    row = row_of(Proposal("weights", GROUP, {"a": 2.0}, "why"), basis(), 900)
    late = row_of(Proposal("weights", GROUP, {"a": 2.0}, "why"), basis(), 100)
    tree = row_of(Proposal("tree", "a", {}, "why"), basis(), 900)
    assert sender.send([row, late, tree]) == 1
    assert sent == [("$headwater/advice/weights/%24share%2Fworkers%2Fjobs%2F%23", row["advice"].encode(), 800.0)]
    assert json.loads(sent[0][1])["number"] == 100


# ---- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("life", 0, "more than 0"),
        ("life", 90_000, "at most a day"),
        ("life", float("nan"), "finite"),
        ("life", "900", "finite"),
        ("least_change", 0, "between 0 and 1"),
        ("least_minutes", 0, "at least 1"),
        ("least_minutes", 1.5, "a whole number"),
        ("least_minutes", True, "a whole number"),
        ("most_weight", 1, "more than 1"),
        ("parts", 1, "from 2 to 64"),
        ("most_filters", 1, "from `parts`"),
        ("tree_churn", 2, "from 0 to 1"),
        ("uneven", 1.0, "more than 1"),
        ("tree_members", 1, "leaves"),
    ],
)
def test_settings_that_cannot_be(name: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*{said}"):
        Settings.from_settings({name: value})


def test_settings_that_are_not_there() -> None:
    with pytest.raises(ValueError, match=r"unknown setting 'colour' of \[advising\]; there are life"):
        Settings.from_settings({"colour": "red"})
    assert Settings.from_settings({"parts": 3}).parts == 3
