"""The judge is judged first: it acquits a faultless broker, and finds any single fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_lab.chaos.checker import Checker, Violation
from headwater_lab.chaos.history import (
    Acknowledged,
    Connected,
    Connecting,
    Disconnected,
    Event,
    History,
    Killed,
    Leaving,
    Note,
    Received,
    Sent,
    Settled,
    Shown,
    Started,
    Stopped,
    Subscribed,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
    message_in,
    payload_of,
)

from .ideal import MEMBERS, Ideal

STEPS = 150
seeds = st.integers(0, 1 << 32)


def ideal(seed: int) -> History:
    return Ideal(Random(seed)).run(STEPS)


def found(history: History) -> list[Violation]:
    return Checker(history).check()


def kinds(history: History) -> set[str]:
    return {violation.kind for violation in found(history)}


@given(seeds)
@settings(deadline=None, max_examples=150)
def test_a_faultless_broker_is_acquitted(seed: int) -> None:
    assert found(ideal(seed)) == []


# ---- one seeded fault --------------------------------------------------------------------------------------------

Fault = Callable[[History, Random], bool]
"""Makes a fault, if there is a place for it."""


def received_places(history: History, test: Callable[[Received, Note], bool]) -> list[int]:
    return [
        place
        for place, event in enumerate(history.events)
        if isinstance(event, Received) and event.message and test(event, history.notes[event.message])
    ]


def remove_message(history: History, client: str | None, message: int) -> None:
    """It never came; `client` None: to anybody. Something else happened instead, so that places stay."""
    for place, event in enumerate(history.events):
        if isinstance(event, Received) and event.message == message and client in (None, event.client):
            history.events[place] = Started(event.at)


def lose_one(history: History, random: Random) -> bool:
    places = received_places(history, lambda event, note: event.client == "sub-1" and not note.retain)
    if places:
        event = history.events[random.choice(places)]
        assert isinstance(event, Received)
        remove_message(history, "sub-1", event.message)
    return bool(places)


def lose_in_group(history: History, random: Random) -> bool:
    places = received_places(history, lambda event, note: event.client in MEMBERS)
    if places:
        event = history.events[random.choice(places)]
        assert isinstance(event, Received)
        for member in MEMBERS:
            remove_message(history, member, event.message)
    return bool(places)


def lose_will(history: History, random: Random) -> bool:
    places = received_places(history, lambda event, note: note.will)
    if places:
        event = history.events[random.choice(places)]
        assert isinstance(event, Received)
        remove_message(history, None, event.message)
    return bool(places)


def double(history: History, random: Random) -> bool:
    """The same QoS 2 delivery again, after a reconnect."""
    places = received_places(history, lambda event, note: event.qos == 2 and event.client == "sub-2")
    if places:
        history.events += [
            Disconnected(1e6, "sub-2"),
            Connecting(1e6, "sub-2", False, None, 0),
            Connected(1e6, "sub-2", True),
            replace(history.events[random.choice(places)], at=1e6),
        ]
    return bool(places)


def double_in_group(history: History, random: Random) -> bool:
    places = received_places(history, lambda event, note: event.qos == 2 and event.client == "member-1")
    if places:
        history.events.append(replace(history.events[random.choice(places)], client="member-2"))
    return bool(places)


def double_on_one_connection(history: History, random: Random) -> bool:
    """QoS 1 may come twice, but only if somebody had a reason to send it again."""
    sent = [event.message for event in history.events if isinstance(event, Sent)]
    places = received_places(history, lambda event, note: event.qos == 1 and sent.count(event.message) == 1)
    if places:
        place = random.choice(places)
        history.events.insert(place, history.events[place])
    return bool(places)


def reorder(history: History, random: Random) -> bool:
    """Two messages of one publisher and topic change places, if both came once."""
    line = ("pub-1", "t/0", 2)
    places = received_places(
        history, lambda event, note: event.client == "sub-2" and (note.publisher, note.topic, note.qos) == line
    )
    if len(places) < 2:
        return False
    first, second = sorted(random.sample(places, 2))
    one, other = history.events[first], history.events[second]
    assert isinstance(one, Received) and isinstance(other, Received)
    sent = [place for place, event in enumerate(history.events) if event == Sent(event.at, other.message)]
    if min(sent) > first:
        return False  # that would be stranger still
    history.events[first], history.events[second] = other, one
    return True


def make_stale(history: History, random: Random) -> bool:
    """At the end a topic has the value before its last."""
    shown = history.events[-1]
    assert isinstance(shown, Shown)
    for topic in shown.found:
        values = [note.message for note in history.notes.values() if note.retain and note.topic == topic]
        if len(values) > 1:
            history.events[-1] = replace(shown, found={**shown.found, topic: values[-2]})
            return True
    return False


def forget_retained(history: History, random: Random) -> bool:
    shown = history.events[-1]
    assert isinstance(shown, Shown)
    if shown.found:
        history.events[-1] = replace(shown, found={})
    return bool(shown.found)


def resurrect_retained(history: History, random: Random) -> bool:
    """A cleared topic has its value again."""
    shown = history.events[-1]
    assert isinstance(shown, Shown)
    for topic in ("k/0", "k/1"):
        values = [note.message for note in history.notes.values() if note.retain and note.topic == topic and note.size]
        if topic not in shown.found and values:
            history.events[-1] = replace(shown, found={**shown.found, topic: values[-1]})
            return True
    return False


def damage(history: History, random: Random) -> bool:
    places = received_places(history, lambda event, note: True)
    if places:
        place = random.choice(places)
        history.events[place] = replace(history.events[place], message=-1)
    return bool(places)


def invent(history: History, random: Random) -> bool:
    history.events.append(Received(1e6, "sub-1", 999_999, "t/0", 1, False, False, True, None))
    return True


def give_to_another(history: History, random: Random) -> bool:
    """Somebody gets what it was never subscribed to."""
    places = received_places(history, lambda event, note: event.client == "sub-1" and event.topic == "t/2")
    if places:
        place = random.choice(places)
        event = history.events[place]
        assert isinstance(event, Received)
        history.events.append(replace(event, client="sub-2"))
    return bool(places)


def forget_session(history: History, random: Random) -> bool:
    places = [place for place, event in enumerate(history.events) if isinstance(event, Connected) and event.present]
    if places:
        place = random.choice(places)
        history.events[place] = replace(history.events[place], present=False)
    return bool(places)


FAULTS: list[tuple[str, Fault]] = [
    ("lost", lose_one),
    ("lost", lose_in_group),
    ("lost", lose_will),
    ("doubled", double),
    ("doubled", double_in_group),
    ("doubled", double_on_one_connection),
    ("reordered", reorder),
    ("stale", make_stale),
    ("stale", forget_retained),
    ("stale", resurrect_retained),
    ("strange", damage),
    ("strange", invent),
    ("strange", give_to_another),
    ("session", forget_session),
]


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[fault.__name__ for _, fault in FAULTS])
def test_one_fault_is_found(kind: str, fault: Fault) -> None:
    made = 0
    for seed in range(60):
        history = ideal(seed)
        if fault(history, Random(seed)):
            made += 1
            assert kind in kinds(history), f"seed {seed}"
    assert made > 10


# ---- stories -----------------------------------------------------------------------------------------------------


def told(*events: Event, notes: list[Note]) -> set[str]:
    """The kinds of violations in a history; events without a time come one millisecond after the one before."""
    history = History()
    for note in notes:
        history.note(note)
    now = 0.0
    for event in events:
        now = event.at = event.at or now + 0.001
        history.add(event)
    return kinds(history)


def arrival(client: str = "sub", expiry: int | None = None, clean: bool = False, present: bool = False) -> list[Event]:
    return [Connecting(0, client, clean, expiry, 0), Connected(0, client, present)]


def subscribed(client: str = "sub", qos: int = 2) -> list[Event]:
    return [Subscribing(0, client, "t", qos), Subscribed(0, client, "t")]


def got(message: int = 1, client: str = "sub", qos: int = 2, at: float = 0.0, left: int | None = None) -> Event:
    return Received(at, client, message, "t", qos, False, False, True, left)


def published(message: int = 1, acknowledged: bool = True) -> list[Event]:
    return [Sent(0, message), *([Acknowledged(0, message)] if acknowledged else [])]


ONE = Note(1, "pub", "t", 2)
KILL: list[Event] = [Disconnected(0, "sub"), Killed(0, ""), Started(0)]


def test_what_was_not_acknowledged_may_be_lost() -> None:
    assert told(*arrival(), *subscribed(), *published(acknowledged=False), notes=[ONE]) == set()
    assert told(*arrival(), *subscribed(), *published(), notes=[ONE]) == {"lost"}


def test_who_subscribes_after_the_first_sending_need_not_get_a_qos_2_message() -> None:
    """The first sending may have been the one that counted; of QoS 1, each one counts."""
    story = [*arrival(), Sent(0, 1), *subscribed(), Sent(0, 1), Acknowledged(0, 1)]
    assert told(*story, notes=[ONE]) == set()
    assert told(*story, notes=[replace(ONE, qos=1)]) == {"lost"}


def test_a_subscription_without_suback_may_be_there_or_not() -> None:
    story = [*arrival(), Subscribing(0, "sub", "t", 2), *KILL, *arrival(present=True), *published()]
    assert told(*story, notes=[ONE]) == set()
    assert told(*story, got(), notes=[ONE]) == set()


def test_after_unsuback_nothing_new_comes() -> None:
    left = [Unsubscribing(0, "sub", "t"), Unsubscribed(0, "sub", "t")]
    assert told(*arrival(), *subscribed(), *left, *published(), got(), notes=[ONE]) == {"strange"}
    assert told(*arrival(), *subscribed(), *published(), *left, got(), notes=[ONE]) == set()
    assert told(*arrival(), *subscribed(), *published(), *left, notes=[ONE]) == {"lost"}
    assert told(*arrival(), *subscribed(), left[0], *KILL, *arrival(present=True), *published(), notes=[ONE]) == set()


def test_after_a_clean_start_nothing_old_comes() -> None:
    story = [*arrival(), *subscribed(), *published(), *KILL, *arrival(clean=True)]
    assert told(*story, notes=[ONE]) == set()
    assert told(*story, got(), notes=[ONE]) == {"strange"}
    assert told(*story[:-1], Connected(0, "sub", True), notes=[ONE]) == {"session"}


def test_another_session_may_get_it_again() -> None:
    """A message that was not acknowledged is sent again, and this session has not had it."""
    story = [
        *arrival(),
        *subscribed(),
        Sent(0, 1),
        got(),
        *KILL,
        *arrival(clean=True),
        *subscribed(),
        Sent(0, 1),
        got(),
    ]
    assert told(*story, Acknowledged(0, 1), notes=[ONE]) == set()
    story[-6:-4] = arrival(present=True)
    assert told(*story, Acknowledged(0, 1), notes=[ONE]) == {"doubled"}


def test_what_was_done_does_not_come_again() -> None:
    note = replace(ONE, qos=1)
    story = [*arrival(), *subscribed(qos=1), *published(), got(qos=1)]
    back = [Disconnected(0, "sub"), Stopped(0), Started(0), *arrival(present=True)]
    assert told(*story, *back, got(qos=1), notes=[note]) == set()
    assert told(*story, Settled(0), *back, notes=[note]) == set()
    assert told(*story, Settled(0), *back, got(qos=1), notes=[note]) == {"doubled"}


def test_a_clean_start_without_an_answer_leaves_both_open() -> None:
    story = [*arrival(), *subscribed(), *published(), *KILL, Connecting(0, "sub", True, None, 0), *KILL]
    assert told(*story, *arrival(present=True), notes=[ONE]) == set()
    assert told(*story, *arrival(present=False), notes=[ONE]) == set()


def test_a_clean_start_without_an_answer_may_have_ended_the_subscriptions() -> None:
    story = [*arrival(), *subscribed(), *KILL, Connecting(0, "sub", True, None, 0), *KILL, *arrival(present=True)]
    assert told(*story, *published(), notes=[ONE]) == set()
    assert told(*story, *subscribed(), *published(), notes=[ONE]) == {"lost"}


def test_who_subscribes_between_two_messages_may_get_the_first_one_later() -> None:
    """If it is sent again; then it did not come out of order."""
    notes = [replace(ONE, qos=1), replace(ONE, message=2, qos=1)]
    again = [
        got(2, qos=1),
        Sent(0, 1),
        Acknowledged(0, 1),
        got(1, qos=1),
        Sent(0, 2),
        Acknowledged(0, 2),
        got(2, qos=1),
    ]
    assert told(*arrival(), Sent(0, 1), *subscribed(qos=1), Sent(0, 2), *again, notes=notes) == set()
    assert told(*arrival(), *subscribed(qos=1), Sent(0, 1), Sent(0, 2), *again, notes=notes) == {"reordered"}
    notes[0].expiry = 1  # the first sending may have expired
    assert told(*arrival(), *subscribed(qos=1), Sent(0, 1), Sent(0, 2), *again, notes=notes) == set()


def test_a_session_expires_in_its_time_and_not_before() -> None:
    story = [*arrival(expiry=10), *subscribed(), Disconnected(100.0, "sub")]
    for back_at, allowed in ((105.0, {True}), (110.0, {True, False}), (115.0, {False})):
        for present in (True, False):
            back = [Connecting(back_at, "sub", False, 10, 0), Connected(0, "sub", present)]
            assert told(*story, *back, notes=[]) == (set() if present in allowed else {"session"})


def test_a_session_expires_over_restarts() -> None:
    """The broker may count from its first start after the crash, but not from each."""
    story = [
        *arrival(expiry=10),
        Disconnected(100.0, "sub"),
        Killed(0, ""),
        Started(105.0),
        Killed(0, ""),
        Started(112.0),
    ]
    for back_at, wrong in ((113.0, False), (118.0, True)):
        back = [Connecting(back_at, "sub", False, 10, 0), Connected(0, "sub", True)]
        assert told(*story, *back, notes=[]) == ({"session"} if wrong else set())


def test_a_session_that_should_end_with_its_connection() -> None:
    story = [*arrival(expiry=0), *KILL, Connecting(0, "sub", False, 0, 0)]
    assert told(*story, Connected(0, "sub", True), notes=[]) == {"session"}
    assert told(*story, Connected(0, "sub", False), notes=[]) == set()


def will_story(*after: Event, delay: int = 0, come: bool = False) -> set[str]:
    will = Note(1, "testator", "t", 2, will=True, delay=delay)
    connection = [Connecting(0, "testator", True, 0, 1), Connected(0, "testator", False)]
    return told(*arrival(), *subscribed(), *connection, *after, *([got()] if come else []), notes=[will])


def test_a_will_is_due_when_the_broker_dies() -> None:
    end = [Disconnected(0, "testator"), *KILL, *arrival(present=True)]
    assert will_story(*end) == {"lost"}
    assert will_story(*end, come=True) == set()
    assert will_story(*end, got(), *KILL, *arrival(present=True), come=True) == {"doubled"}


def test_a_will_is_called_off_by_a_disconnect_that_was_read() -> None:
    end = [Leaving(0, "testator", False), Disconnected(0, "testator")]
    again = [Connecting(0, "testator", True, 0, 0), Connected(0, "testator", False)]
    assert will_story(*end) == set()
    assert will_story(*end, *again, come=True) == {"strange"}
    assert will_story(*end, *KILL, *arrival(present=True), *again, come=True) == set()
    assert will_story(Leaving(0, "testator", True), Disconnected(0, "testator"), *again) == {"lost"}


def test_a_will_with_a_delay_is_called_off_by_a_return() -> None:
    end = [Disconnected(0, "testator"), *KILL, *arrival(present=True)]
    again = [Connecting(0, "testator", False, 100, 0), Connected(0, "testator", False)]
    assert will_story(*end, *again, delay=30) == set()
    assert will_story(*end, *again, delay=30, come=True) == {"strange"}


def test_a_will_with_a_delay_is_due_after_it() -> None:
    """Counted from the first start after the kill, and not from each."""
    end = [Disconnected(100.0, "testator"), Disconnected(0, "sub"), Killed(0, ""), Started(102.0), Killed(0, "")]
    end += [Started(104.0), *arrival(present=True)]
    for back_at, due in ((106.0, False), (109.0, True)):
        again = [Connecting(back_at, "testator", False, 100, 0), Connected(0, "testator", True)]
        assert ("lost" in will_story(*end, *again, delay=5)) == due
        tried = [
            Connecting(105.0, "testator", False, 100, 0),
            Disconnected(0, "testator"),
            *KILL,
            *arrival(present=True),
        ]
        assert "lost" not in will_story(*end, *tried, *again, delay=5)


def test_a_message_expires() -> None:
    note = replace(ONE, expiry=5)
    story = [*arrival(), *subscribed(), *published(), *KILL]
    late = [Connecting(20.0, "sub", False, None, 0), Connected(0, "sub", True)]
    assert told(*story, *late, notes=[note]) == set()
    assert told(*story, *late, got(), notes=[note]) == {"expired"}


def test_time_left_goes_on_over_restarts() -> None:
    note = replace(ONE, expiry=100)
    late = [Connecting(50.0, "sub", False, None, 0), Connected(0, "sub", True)]
    story = [*arrival(), *subscribed(), *published(), *KILL, *late]
    assert told(*story, got(left=50), notes=[note]) == set()
    assert told(*story, got(left=100), notes=[note]) == {"expired"}
    assert told(*story, got(left=10), notes=[note]) == {"expired"}
    assert told(*story, notes=[note]) == {"lost"}


@pytest.mark.parametrize("size", [16, 17, 200, 70_000])
def test_a_payload_shows_whether_it_is_whole(size: int) -> None:
    payload = payload_of(77, size)
    assert len(payload) == size
    assert message_in(payload) == 77
    assert message_in(payload[:-1]) == -1 or size == 16
    assert message_in(payload[:8] + b"x" + payload[9:]) == -1
    assert message_in(payload[: size // 2] + b"\0" + payload[size // 2 + 1 :]) == -1
    assert message_in(b"") == 0
