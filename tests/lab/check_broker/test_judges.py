"""Judges: what a correct broker may leave behind is not found fault with, and each planted violation is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_lab.check_broker.history import (
    Connect,
    Delivery,
    Ended,
    Entry,
    History,
    Leave,
    Oddity,
    Outcome,
    Publication,
    Read,
)
from headwater_lab.check_broker.judges.court import judge, something_is_missing
from headwater_lab.check_broker.promises import Promise
from tests.lab.check_broker.pretended import REGISTERS, Pretended

histories = st.builds(
    lambda seed, steps: Pretended(Random(seed), steps).history(),
    st.integers(0, 1_000_000),
    st.integers(0, 400),
)


def broken(history: History) -> set[Promise]:
    return {verdict.promise for verdict in judge(history) if verdict.findings}


@settings(max_examples=150, deadline=None)
@given(histories)
def test_a_correct_history_is_not_found_fault_with(history: History) -> None:
    found = [(verdict.promise, verdict.findings, verdict.undecided) for verdict in judge(history)]
    assert [each for each in found if each[1] or each[2]] == []
    assert not something_is_missing(history)


# ---- planted violations ----------------------------------------------------------------------------------------


def insert(history: History, delivery: Delivery, **changes: object) -> None:
    """One more delivery, after all others."""
    more = copy.copy(delivery)
    for name, value in changes.items():
        setattr(more, name, value)
    history.observe(more)


def remove(history: History, entries: list[Entry]) -> None:
    gone = {id(entry) for entry in entries}
    history.entries = [entry for entry in history.entries if id(entry) not in gone]


def sent_by(history: History) -> dict[int, Publication]:
    return {each.message: each for each in history.of(Publication)}


def deliveries(history: History, client: str, qos: int) -> list[Delivery]:
    sent = sent_by(history)
    return [
        each for each in history.of(Delivery) if each.client == client and each.fresh and sent[each.message].qos == qos
    ]


def plant_loss(history: History, random: Random) -> bool:
    sent = sent_by(history)
    known = [each for each in deliveries(history, "sub-2", 1) if sent[each.message].outcome is Outcome.OK]
    if not known:
        return False
    lost = random.choice(known).message
    remove(history, [each for each in history.of(Delivery) if each.message == lost and each.client == "sub-2"])
    return True


def plant_loss_in_a_group(history: History, random: Random) -> bool:
    sent = sent_by(history)
    known = {
        each.message
        for each in history.of(Delivery)
        if each.topic.startswith("s/") and sent[each.message].qos and sent[each.message].outcome is Outcome.OK
    }
    if not known:
        return False
    lost = random.choice(sorted(known))
    remove(history, [each for each in history.of(Delivery) if each.message == lost])
    return True


def plant_twice(history: History, random: Random) -> bool:
    known = deliveries(history, "sub-1", 2)
    if known:
        insert(history, random.choice(known))
    return bool(known)


def plant_qos0_twice(history: History, random: Random) -> bool:
    known = deliveries(history, "sub-1", 0)
    if known:
        insert(history, random.choice(known))
    return bool(known)


def plant_reordering(history: History, random: Random) -> bool:
    sent = sent_by(history)
    streams: dict[tuple[str, str, int], list[Delivery]] = {}
    seen = set()
    for each in history.of(Delivery):
        publication = sent[each.message]
        if each.client == "sub-1" and each.message not in seen and publication.outcome is Outcome.OK:
            seen.add(each.message)
            streams.setdefault((publication.client, publication.topic, publication.qos), []).append(each)
    pairs = [stream for stream in streams.values() if len(stream) > 1]
    if not pairs:
        return False
    stream = random.choice(pairs)
    place = random.randrange(len(stream) - 1)
    first, second = stream[place], stream[place + 1]
    first.message, second.message = second.message, first.message
    # Repetitions of either would come before the first time otherwise.
    repeated = [each for each in history.of(Delivery) if each.message in (first.message, second.message)]
    remove(history, [each for each in repeated if each.client == "sub-1" and each not in (first, second)])
    return True


def plant_lost_session(history: History, random: Random) -> bool:
    again = [each for each in history.of(Connect) if each.present]
    if again:
        random.choice(again).present = False
    return bool(again)


def plant_earlier_connection_that_stays(history: History, random: Random) -> bool:
    calm = {verdict.promise: verdict.looked_at for verdict in judge(history)}[Promise.TAKE_OVER]
    taken = {each.takes_over for each in history.of(Connect) if each.takes_over is not None}
    remove(history, [each for each in history.of(Ended) if each.connection in taken])
    return calm > 0


def wills(history: History) -> list[Publication]:
    return [each for each in history.of(Publication) if each.will_of is not None]


def plant_will_twice(history: History, random: Random) -> bool:
    came = [each for each in history.of(Delivery) if each.topic.startswith("w/")]
    if came:
        insert(history, random.choice(came))
    return bool(came)


def plant_no_will(history: History, random: Random) -> bool:
    came = [each for each in history.of(Delivery) if each.topic.startswith("w/")]
    remove(history, list(came))
    return bool(came)


def plant_will_after_leave(history: History, random: Random) -> bool:
    left = {each.connection for each in history.of(Leave)}
    of_them = [each for each in wills(history) if each.will_of in left]
    if not of_them:
        return False
    will = random.choice(of_them)
    history.observe(Delivery(client="watcher", connection=3, message=will.message, topic=will.topic, qos=2))
    return True


def plant_two_members(history: History, random: Random) -> bool:
    calm = [each for each in history.of(Delivery) if each.topic.startswith("s/") and each.qos == 2]
    if calm:
        one = random.choice(calm)
        insert(history, one, client="member-2" if one.client == "member-1" else "member-1")
    return bool(calm)


def plant_stale_read(history: History, random: Random) -> bool:
    for topic in REGISTERS:
        writes = [each for each in history.of(Publication) if each.topic == topic and each.outcome is Outcome.OK]
        for read in history.of(Read):
            before = [each for each in writes if each.completed < read.invoked]
            old = [each for each in before if any(each.completed < later.invoked for later in before)]
            if read.topic == topic and not read.final and old:
                read.message = random.choice(old).message
                return True
    return False


def plant_read_of_nothing(history: History, random: Random) -> bool:
    for read in history.of(Read):
        writes = [each for each in history.of(Publication) if each.topic == read.topic]
        if any(each.outcome is Outcome.OK and each.completed < read.invoked for each in writes) and not read.final:
            read.message = 0
            return True
    return False


def plant_old_end(history: History, random: Random) -> bool:
    for read in history.of(Read):
        writes = [each for each in history.of(Publication) if each.topic == read.topic]
        if read.final and any(each.outcome is Outcome.OK for each in writes):
            read.message = 0
            return True
    return False


def plant_different_ends(history: History, random: Random) -> bool:
    final = [each for each in history.of(Read) if each.final and each.message]
    if final:
        other = copy.copy(final[0])
        other.message, other.target = 0, "other:1883"
        history.complete(history.invoke(other), Outcome.OK)
    return bool(final)


def plant_damage(history: History, random: Random) -> bool:
    came = list(history.of(Delivery))
    if came:
        insert(history, random.choice(came), message=-1)
    return bool(came)


def plant_other_topic(history: History, random: Random) -> bool:
    came = list(history.of(Delivery))
    if came:
        insert(history, random.choice(came), topic="q/other")
    return bool(came)


def plant_oddity(history: History, random: Random) -> bool:
    history.observe(Oddity(client="sub-1", text="got what is no packet"))
    return True


PLANTS: dict[Callable[[History, Random], bool], Promise] = {
    plant_loss: Promise.ACKNOWLEDGED,
    plant_loss_in_a_group: Promise.GROUP,
    plant_twice: Promise.ONCE,
    plant_qos0_twice: Promise.AT_MOST_ONCE,
    plant_reordering: Promise.ORDER,
    plant_lost_session: Promise.SESSION,
    plant_earlier_connection_that_stays: Promise.TAKE_OVER,
    plant_will_twice: Promise.WILL,
    plant_no_will: Promise.WILL,
    plant_will_after_leave: Promise.WILL,
    plant_two_members: Promise.GROUP,
    plant_stale_read: Promise.RETAINED_LINEARIZABLE,
    plant_read_of_nothing: Promise.RETAINED_LINEARIZABLE,
    plant_old_end: Promise.RETAINED_CONVERGES,
    plant_different_ends: Promise.RETAINED_CONVERGES,
    plant_damage: Promise.INTEGRITY,
    plant_other_topic: Promise.INTEGRITY,
    plant_oddity: Promise.INTEGRITY,
}
ALSO_IN_FAULTS = {plant_no_will, plant_will_after_leave}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_planted_is_found(plant: Callable[[History, Random], bool], seed: int) -> None:
    """In one of some histories of each seed, since not every history has a place for it."""
    for attempt in range(20):
        random = Random(f"{seed} {attempt}")
        history = Pretended(random, 300).history()
        assert broken(history) == set()
        if plant(history, random):
            found = broken(history)
            assert PLANTS[plant] in found or (plant in ALSO_IN_FAULTS and Promise.WILL_IN_FAULTS in found)
            return
    pytest.fail("no history has a place for it")


def test_a_full_history_proves_no_loss() -> None:
    history = Pretended(Random(1), 200).history()
    remove(history, list(history.of(Delivery)))
    assert Promise.ACKNOWLEDGED in broken(history)
    history.dropped = 1
    assert Promise.ACKNOWLEDGED not in broken(history)
    assert any(verdict.undecided for verdict in judge(history) if verdict.promise is Promise.ACKNOWLEDGED)
