"""The sending half of a session against a model that is a plain list of who is where."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.message import NEVER, Delivery, Message
from headwater.session.outbound import MAX_PACKET_ID, Outbound
from headwater.session.waiting import (
    DISCONNECT_WHEN_FULL,
    DROP_NEWEST,
    DROP_OLDEST,
    DROPPED,
    OVERFLOW,
    OVERHEAD,
    QUEUED,
    REFUSE,
    SEND,
    Budget,
    UserQueues,
)

TOPIC = "t"


def delivery(number: int, qos: int = 1, size: int = 8, expires_at: float = NEVER, group: object = None) -> Delivery:
    payload = number.to_bytes(4, "big") + bytes(size - 4)
    return Delivery(Message(TOPIC, payload, qos, expires_at=expires_at), qos, False, None, group)


def number_of(each: Delivery | None) -> int:
    assert each is not None
    return int.from_bytes(each.message.payload[:4], "big")


class Sent:
    """A QoS 1 or 2 message in flight, as the model sees it."""

    def __init__(self, number: int, qos: int) -> None:
        self.number = number
        self.qos = qos
        self.released = False
        self.on_this_connection = True


FLIGHT = 50
"""Bytes of every packet that flies."""


class OutboundMachine(RuleBasedStateMachine):
    """Does with an Outbound what the server does, and keeps its own account of every message ever offered."""

    @initialize(
        policy=st.sampled_from([DROP_NEWEST, DROP_OLDEST, DISCONNECT_WHEN_FULL, REFUSE]),
        max_messages=st.integers(0, 4),
        max_bytes=st.sampled_from([0, 300, 700, 100_000]),
        limit=st.sampled_from([600, 1200, 100_000]),
        first_id=st.sampled_from([1, MAX_PACKET_ID - 1]),
    )
    def begin(self, policy: int, max_messages: int, max_bytes: int, limit: int, first_id: int) -> None:
        self.budget = Budget(limit)
        self.outbound = Outbound(self.budget, max_messages, max_bytes, policy)
        self.outbound.next_id = first_id
        self.now = 0.0
        self.offered = 0
        self.others = 0
        self.connected = False
        self.waiting: list[Delivery] = []
        self.flights: dict[int, Sent] = {}
        self.first_sent: list[int] = []
        self.finished: set[int] = set()
        self.dropped: set[int] = set()

    # ---- what the server does ----

    def send(self, each: Delivery) -> None:
        assert self.connected
        number = number_of(each)
        self.first_sent.append(number)
        if each.qos == 0:
            self.finished.add(number)
            return
        packet_id = self.outbound.take_id()
        assert 1 <= packet_id <= MAX_PACKET_ID
        assert packet_id not in self.flights, "a packet id in use was given out again"
        self.outbound.fly(packet_id, each, FLIGHT)
        self.flights[packet_id] = Sent(number, each.qos)

    def send_again(self, packet_ids: list[int]) -> None:
        again = [self.flights[packet_id] for packet_id in packet_ids]
        assert [each.number for each in again] == sorted(each.number for each in again)
        for each in again:
            assert not each.on_this_connection, "sent twice on one connection"
            each.on_this_connection = True

    def drain(self) -> None:
        if not self.connected:
            return
        self.send_again(self.outbound.next_unsent())
        while not self.outbound.unsent:
            each = self.outbound.next_waiting(self.now)
            self.account_for_expired()
            if each is None:
                break
            assert number_of(each) == number_of(self.waiting.pop(0))
            assert each.message.expires_at > self.now, "sent for the first time although it had expired"
            self.send(each)

    def account_for_expired(self) -> None:
        for each in self.outbound.take_given_up():
            assert number_of(each) == number_of(self.waiting.pop(0))
            assert each.message.expires_at <= self.now
            self.dropped.add(number_of(each))

    # ---- what happens ----

    @rule(
        qos=st.sampled_from([0, 1, 1, 2, 2]),
        size=st.sampled_from([4, 100, 400]),
        lifetime=st.sampled_from([NEVER, NEVER, NEVER, 5.0]),
    )
    def offer(self, qos: int, size: int, lifetime: float) -> None:
        self.offered += 1
        new = delivery(self.offered, qos, size, self.now + lifetime)
        if qos == 0 and not self.connected:
            self.dropped.add(self.offered)  # the server does not offer these
            return
        nothing_waits = not self.waiting and all(each.on_this_connection for each in self.flights.values())
        was_full = self.outbound.full
        used = self.budget.used
        result = self.outbound.offer(new, self.connected)
        if result == SEND:
            assert nothing_waits, "overtook what waits"
            self.send(new)
            return
        assert not (self.connected and nothing_waits and (qos == 0 or self.room() > 0)), "waits for nothing"
        memory = used + new.message.size() <= self.budget.limit
        if qos == 0 and (was_full or not memory):
            assert result == DROPPED, "QoS 0 gives way to what others need"
            self.dropped.add(self.offered)
        else:
            self.check_policy(new, result)

    def check_policy(self, new: Delivery, result: int) -> None:
        """What memory others need does not count: what was let in is kept."""
        outbound = self.outbound
        could_wait = outbound.max_messages > 0 and new.message.size() <= outbound.max_bytes
        waited = sum(each.message.size() for each in self.waiting)
        fits = len(self.waiting) < outbound.max_messages and waited + new.message.size() <= outbound.max_bytes
        given_up = outbound.take_given_up()
        if fits or outbound.policy == REFUSE:
            assert result == QUEUED and not given_up
        elif outbound.policy == DROP_OLDEST and could_wait:
            assert result == QUEUED and given_up
        else:
            assert result == (OVERFLOW if outbound.policy == DISCONNECT_WHEN_FULL else DROPPED) and not given_up
        for each in given_up:
            assert number_of(each) == number_of(self.waiting.pop(0)), "the oldest give way"
            self.dropped.add(number_of(each))
        if result == QUEUED:
            self.waiting.append(new)
        else:
            self.dropped.add(number_of(new))

    @precondition(lambda self: not self.connected)
    @rule(window=st.integers(1, 4))
    def connect(self, window: int) -> None:
        self.connected = True
        self.outbound.connected(window)
        resumed = self.outbound.resume()
        released = {packet_id for packet_id, each in self.flights.items() if each.released}
        assert released <= set(resumed), "PUBREL needs no quota"
        self.send_again(resumed)
        self.drain()

    @precondition(lambda self: self.connected)
    @rule()
    def disconnect(self) -> None:
        self.connected = False
        self.outbound.disconnected()
        for each in self.flights.values():
            each.on_this_connection = False

    @precondition(lambda self: self.connected)
    @rule(data=st.data(), kind=st.sampled_from(["puback", "pubrec", "pubrec refusing", "pubcomp"]))
    def answer(self, data: st.DataObject, kind: str) -> None:
        """Any acknowledgement for any id: fitting, of the wrong kind, unknown."""
        packet_id = data.draw(st.sampled_from([*self.flights, 77]))
        flight = self.flights.get(packet_id)
        ends = flight is not None and (
            (kind == "puback" and flight.qos == 1)
            or (kind == "pubrec refusing" and flight.qos == 2 and not flight.released)
            or (kind == "pubcomp" and flight.released)
        )
        if kind == "puback":
            found = self.outbound.acknowledged(packet_id)
        elif kind == "pubcomp":
            found = self.outbound.completed(packet_id)
        else:
            found = self.outbound.received(packet_id, 0x97 if "refusing" in kind else 0)
        belongs = ends or ("pubrec" in kind and flight is not None and flight.qos == 2)
        assert (found is not None) == belongs
        if ends and flight is not None:
            del self.flights[packet_id]
            self.finished.add(flight.number)
        elif belongs and flight is not None:
            flight.released = True
        self.drain()

    @rule(seconds=st.sampled_from([1.0, 5.0]))
    def later(self, seconds: float) -> None:
        self.now += seconds
        self.drain()

    @rule(size=st.sampled_from([0, 300, 900]))
    def others_wait(self, size: int) -> None:
        """Other sessions take from the same budget, or give it back."""
        self.budget.used += size - self.others
        self.others = size

    # ---- what always holds ----

    def room(self) -> int:
        return self.outbound.window - sum(1 for each in self.flights.values() if each.on_this_connection)

    @invariant()
    def no_more_than_the_window_is_unacknowledged(self) -> None:
        if self.connected:
            unanswered = [each for each in self.flights.values() if each.on_this_connection and not each.released]
            assert len(unanswered) <= self.outbound.window
            assert self.outbound.quota == self.room(), "the quota forgets or invents places"

    @invariant()
    def accounts_agree(self) -> None:
        outbound = self.outbound
        assert {packet_id: each.qos for packet_id, each in outbound.flights.items()} == {
            packet_id: each.qos for packet_id, each in self.flights.items()
        }
        assert [number_of(each) for each in outbound.queue or ()] == [number_of(each) for each in self.waiting]
        assert outbound.waiting() == len(self.waiting)
        assert outbound.queued_bytes == sum(each.message.size() for each in self.waiting)
        full = len(self.waiting) >= outbound.max_messages or outbound.queued_bytes >= outbound.max_bytes
        if outbound.policy == REFUSE:
            assert outbound.full == (full and bool(self.waiting)), "publishers are told what is not so"
        else:
            assert len(self.waiting) <= outbound.max_messages and outbound.queued_bytes <= outbound.max_bytes
        assert self.budget.full_queues == outbound.full
        unreleased = sum(not each.released for each in self.flights.values())
        assert outbound.flying_bytes() == unreleased * FLIGHT + len(self.flights) * OVERHEAD
        assert self.budget.used == outbound.queued_bytes + outbound.flying_bytes() + self.others
        assert self.budget.messages == len(self.waiting)

    @invariant()
    def nothing_is_lost_and_order_is_kept(self) -> None:
        flying = {each.number for each in self.flights.values()}
        waiting = {number_of(each) for each in self.waiting}
        everything = [self.finished, self.dropped, flying, waiting]
        assert set().union(*everything) == set(range(1, self.offered + 1))
        assert sum(len(each) for each in everything) == self.offered
        assert self.first_sent == sorted(self.first_sent)

    @invariant()
    def nothing_waits_without_reason(self) -> None:
        if self.connected and self.room() > 0:
            assert not self.outbound.unsent and not self.waiting


def test_whatever_happens_promises_and_accounts_hold() -> None:
    run_state_machine_as_test(
        OutboundMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


def test_a_waiting_message_is_counted_with_all_it_carries() -> None:
    plain = delivery(1, size=100).message.size()
    assert plain == 100 + len(TOPIC) + OVERHEAD
    message = Message(
        TOPIC,
        bytes(100),
        response_topic="r" * 10,
        correlation_data=b"c" * 20,
        content_type="t" * 30,
        user_properties=[("k" * 40, "v" * 50), ("", "")],
    )
    assert message.size() >= plain + 10 + 20 + 30 + 40 + 50


def test_all_packet_ids_in_use() -> None:
    outbound = Outbound(Budget(0), 0, 0, DROP_NEWEST)
    outbound.connected(MAX_PACKET_ID)
    for number in range(MAX_PACKET_ID):
        outbound.fly(outbound.take_id(), delivery(number), 0)
    assert outbound.take_id() == 0
    assert sorted(outbound.flights) == list(range(1, MAX_PACKET_ID + 1))
    assert outbound.acknowledged(4711) is not None
    assert outbound.take_id() == 4711


def test_what_a_group_sent_can_be_taken_back() -> None:
    """What waited is taken off by group, a flight by its id; `clear` hands back the rest of what waited."""
    budget = Budget(10_000)
    outbound = Outbound(budget, 10, 10_000, DROP_NEWEST)
    outbound.connected(3)
    group = object()
    for number, (qos, owner) in enumerate([(1, None), (1, group), (2, group)]):
        outbound.fly(outbound.take_id(), delivery(number, qos, group=owner), 100)
    outbound.wait(delivery(3, group=group))
    outbound.wait(delivery(4))
    outbound.wait(delivery(5, group=group))
    outbound.wait(delivery(6, group=object()))
    assert [number_of(each) for each in outbound.take_of({group})] == [3, 5]
    outbound.disconnected()
    outbound.take_flight(2)
    assert (outbound.quota, sorted(outbound.flights)) == (0, [1, 3])
    assert budget.used == outbound.queued_bytes + outbound.flying_bytes()
    assert [number_of(each) for each in outbound.clear()] == [4, 6]
    assert (outbound.flights, outbound.waiting(), outbound.queued_bytes, budget.used) == ({}, 0, 0, 0)


def test_a_long_line_ends_at_once() -> None:
    """Its messages are handed over as they are, and given up in portions by others; what is away counts less."""
    budget = Budget(1_000_000)
    outbound = Outbound(budget, 1000, 1_000_000, DROP_NEWEST)
    user = UserQueues(0)
    outbound.move_to(user)
    for number in range(500):
        outbound.wait(delivery(number))
    waiting = outbound.queue
    assert waiting is not None
    for each in list(waiting)[:100]:
        outbound.put_away(each)
    outbound.restore(delivery(500), 1000)
    assert outbound.take_of(set()) == [] and outbound.queue is waiting
    assert outbound.clear() is waiting
    assert (outbound.queued_bytes, outbound.away_bytes, budget.used, user.used) == (0, 0, 0, 0)


@pytest.mark.parametrize("policy", [DROP_NEWEST, DROP_OLDEST])
def test_what_can_never_fit_takes_nobodys_place(policy: int) -> None:
    outbound = Outbound(Budget(10_000), 10, 1_000, policy)
    outbound.wait(delivery(1))
    assert outbound.wait(delivery(2, size=5_000)) == DROPPED
    assert outbound.waiting() == 1 and outbound.dropped == 1


def test_unacknowledged_messages_count_until_they_are_acknowledged() -> None:
    """A reader that never acknowledges takes from the budget of all. When it is used up, only QoS 0 gives way here."""
    budget = Budget(1000)
    outbound = Outbound(budget, 10, 10_000, DROP_NEWEST)
    outbound.connected(2)
    for number in (1, 2):
        assert outbound.offer(delivery(number), True) == SEND
        outbound.fly(outbound.take_id(), delivery(number), 500 - OVERHEAD)
    assert budget.used == 1000
    assert outbound.offer(delivery(3), True) == QUEUED, "what was let in is kept"
    assert outbound.offer(delivery(4, 0), True) == DROPPED
    assert outbound.acknowledged(1) is not None
    assert budget.used == 500 + delivery(3).message.size()
