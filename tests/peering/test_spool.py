"""A link's spool and its other end: over any cuts and crashes, each message is applied once and in order."""

from __future__ import annotations

import contextlib
import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.peering.applied import Applied
from headwater.peering.frames.frame import Ack, MalformedFrame, Resume, Run, Spool
from headwater.peering.spool import ENTRY, RECENT, LinkSpool, MemoryStorage, SpooledRun, decode_block, encode_block


def spooled(number: int, count: int = 1, size: int = 10) -> SpooledRun:
    return SpooledRun(5, 0, count, number, "n1", 1, "client", bytes(size))


def sent(position: int, run: SpooledRun) -> Run:
    return Run(run.protocol, run.hops, run.messages, 1, run.counter, "", run.boot, position, run.packets)


def durable(spool: LinkSpool) -> None:
    spool.committed(spool.seal())


def linked(spool: LinkSpool, position: int = 0) -> LinkSpool:
    spool.greeting()
    spool.resume(spool.spool, position)
    return spool


BLOCK = [SpooledRun(5, 2, 3, 258, "n-1", 7, "é", b"\x32\0" * 3), SpooledRun(4, 0, 1, 0, "a", 1, "", b"")]
KEPT = (
    "01" "0000001e" "0502" "0003" "0000000000000102" "00000007" "036e2d31" "0002c3a9" "320032003200"
    "00000014" "0400" "0001" "0000000000000000" "00000001" "0161" "0000"
)  # fmt: skip

EXPIRING = SpooledRun(5, 0, 1, 3, "a", 1, "", b"\x32\0", 0x1234)
KEPT_EXPIRING = "020000001e050000010000000000000003000000010000000000001234016100003200"


def test_bytes_of_blocks_are_frozen() -> None:
    assert encode_block(BLOCK).hex() == KEPT
    assert decode_block(bytes.fromhex(KEPT)) == BLOCK
    assert encode_block([EXPIRING]).hex() == KEPT_EXPIRING
    assert decode_block(bytes.fromhex(KEPT_EXPIRING)) == [EXPIRING]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_block_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedFrame):
        decode_block(data)


def test_nothing_is_sent_before_it_is_durable() -> None:
    spool = linked(LinkSpool(MemoryStorage(), "p", 1))
    assert spool.append(spooled(0, 2)) == 1
    assert spool.append(spooled(2)) == 3
    assert spool.take() == []
    assert spool.seal() == 3
    assert spool.take() == []
    spool.committed(3)
    assert spool.take() == [(1, spooled(0, 2)), (3, spooled(2))]
    assert spool.take() == []


def test_blocks_are_of_one_commit_and_go_when_all_of_it_is_acknowledged() -> None:
    storage = MemoryStorage()
    spool = linked(LinkSpool(storage, "p", 1))
    for number in range(3):
        spool.append(spooled(number))
    durable(spool)
    spool.append(spooled(3))
    durable(spool)
    assert [(block.first, block.messages) for block in storage.blocks("p")] == [(1, 3), (4, 1)]
    spool.take()
    spool.acknowledge(2)
    assert len(storage.blocks("p")) == 2
    spool.acknowledge(3)
    assert [block.first for block in storage.blocks("p")] == [4]
    spool.acknowledge(4)
    assert (storage.blocks("p"), spool.bytes, spool.waiting) == ([], 0, 0)


def test_what_was_not_acknowledged_is_sent_again() -> None:
    spool = linked(LinkSpool(MemoryStorage(), "p", 1))
    for number in range(4):
        spool.append(spooled(number))
        durable(spool)
    spool.take()
    spool.acknowledge(1)
    spool.cut()
    assert spool.take() == []
    assert spool.greeting() == Spool(1, 2)
    spool.resume(1, 2)
    assert [position for position, _ in spool.take()] == [3, 4]


def test_in_flight_is_bounded_and_so_is_the_spool() -> None:
    spool = linked(LinkSpool(MemoryStorage(), "p", 1, max_bytes=1000, in_flight=250, hop_limit=4))
    number = 0
    while spool.has_room():
        spool.append(spooled(number, size=100))
        number += 1
    assert spool.bytes <= 1000 + 100 + ENTRY + len("client")
    assert [spool.has_room(hops) for hops in (0, 1, 4)] == [False, True, True]
    durable(spool)
    assert len(spool.take()) == 3
    assert spool.take() == []
    spool.acknowledge(1)
    assert len(spool.take()) == 1
    spool.acknowledge(4)
    while spool.take():
        spool.acknowledge(spool._sent or 0)
    assert spool.has_room()
    assert spool.waiting == 0


class Counting(MemoryStorage):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def get(self, peer: str, first: int) -> bytes:
        self.read += 1
        return super().get(peer, first)


def test_what_was_sent_is_not_looked_at_again() -> None:
    """Three times as much as is kept in memory: what is not there any more is read once, in order."""
    storage = Counting()
    spool = linked(LinkSpool(storage, "p", 1, in_flight=2 * RECENT))
    for number in range(30):
        spool.append(spooled(number, size=RECENT // 10))
        durable(spool)
    found = spool.take()
    read = storage.read
    assert [position for position, _ in found] == list(range(1, 1 + len(found)))
    assert 15 < len(found) < 25 and 15 < read <= len(found)
    assert spool.take() == []
    spool.acknowledge(5)
    found += spool.take()
    spool.acknowledge(20)
    found += spool.take()
    assert [run.counter for _, run in found] == list(range(30))
    assert storage.read <= 21, "the last nine are in memory"


def test_a_block_that_is_sent_in_part_goes_on_where_it_was() -> None:
    spool = linked(LinkSpool(MemoryStorage(), "p", 1, in_flight=25))
    for number in range(5):
        spool.append(spooled(number))
    durable(spool)
    spool.append(spooled(5))
    durable(spool)
    assert [position for position, _ in spool.take()] == [1, 2, 3]
    spool.acknowledge(2)
    assert [position for position, _ in spool.take()] == [4, 5]
    spool.cut()
    assert [position for position, _ in linked(spool, 3).take()] == [4, 5, 6]


def test_a_spool_comes_back_from_its_blocks() -> None:
    storage = MemoryStorage()
    spool = LinkSpool(storage, "p", 3)
    spool.append(spooled(0, 2))
    durable(spool)
    spool.append(spooled(2))
    durable(spool)
    again = LinkSpool(storage, "p", 4)
    assert again.greeting() == Spool(3, 1)
    again.resume(3, 0)
    assert again.take() == [(1, spooled(0, 2)), (3, spooled(2))]
    assert again.append(spooled(9)) == 4
    again.acknowledge(3)
    storage.data.clear()
    assert LinkSpool(storage, "p", 5).greeting() == Spool(5, 1), "an empty one counts anew, by another name"


@pytest.mark.parametrize(("spool", "position"), [(2, 0), (1, 4)])
def test_a_peer_that_resumes_elsewhere_is_malformed(spool: int, position: int) -> None:
    one = LinkSpool(MemoryStorage(), "p", 1)
    one.append(spooled(0, 3))
    durable(one)
    with pytest.raises(MalformedFrame):
        one.resume(spool, position)


def test_acknowledgements_of_what_was_not_sent_are_malformed() -> None:
    one = LinkSpool(MemoryStorage(), "p", 1)
    one.append(spooled(0))
    durable(one)
    with pytest.raises(MalformedFrame):
        one.acknowledge(1)
    linked(one)
    with pytest.raises(MalformedFrame):
        one.acknowledge(1)


def test_only_what_is_on_disk_is_acknowledged() -> None:
    applied = Applied()
    assert applied.begin(Spool(1, 1)) == Resume(1, 0)
    assert applied.take(sent(1, spooled(0, 3))) == 0
    assert applied.due() is None
    applied.committed(3)
    assert applied.due() == Ack(3)
    assert applied.due() is None
    assert applied.take(sent(2, spooled(1, 4))) == 2, "two of four were there"
    applied.cut()
    applied.committed(5)
    assert applied.due() is None, "not before the link is resumed"
    assert applied.begin(Spool(1, 4)) == Resume(1, 5)
    assert applied.due() == Ack(5)
    with pytest.raises(MalformedFrame):
        applied.take(sent(7, spooled(0)))


def test_another_life_of_the_spool_counts_anew() -> None:
    applied = Applied(1, 50)
    assert applied.begin(Spool(2, 1)) == Resume(2, 0)
    assert applied.take(sent(1, spooled(0))) == 0


class OverCuts(RuleBasedStateMachine):
    """A sender and a receiver, each with a disk and a memory, and a link between them that breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.boot = 1
        self.number = 0
        self.storage = MemoryStorage()
        self.on_disk = MemoryStorage()
        self.spool = LinkSpool(self.storage, "p", 1, in_flight=60)
        self.promised: list[int] = []
        self.unpromised: list[int] = []
        self.applied = Applied()
        self.effects: list[int] = []
        self.saved: tuple[int, int, list[int]] = (0, 0, [])
        self.wire: list[tuple[int, SpooledRun]] = []
        self.is_linked = False

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        self.spool.append(spooled(self.number, count, size=2 * count))
        self.unpromised += range(self.number, self.number + count)
        self.number += count

    @rule()
    def commit(self) -> None:
        self.spool.committed(self.spool.seal())
        self.on_disk.data = dict(self.storage.data)
        self.promised += self.unpromised
        self.unpromised = []

    @rule()
    def sender_dies(self) -> None:
        self.boot += 1
        self.storage.data = dict(self.on_disk.data)
        self.spool = LinkSpool(self.storage, "p", self.boot, in_flight=60)
        self.unpromised = []
        self.cut()

    @rule()
    def receiver_dies(self) -> None:
        spool, position, effects = self.saved
        self.applied = Applied(spool, position)
        self.effects = list(effects)
        self.cut()

    @rule()
    def cut(self) -> None:
        self.is_linked = False
        self.wire = []
        self.spool.cut()
        self.applied.cut()

    @precondition(lambda self: not self.is_linked)
    @rule()
    def link(self) -> None:
        self.is_linked = True
        resume = self.applied.begin(self.spool.greeting())
        self.spool.resume(resume.spool, resume.position)

    @rule()
    def send(self) -> None:
        self.wire += self.spool.take()

    @precondition(lambda self: self.wire)
    @rule()
    def arrive(self) -> None:
        position, run = self.wire.pop(0)
        known = self.applied.take(sent(position, run))
        self.effects += range(run.counter + known, run.counter + run.messages)

    @rule()
    def save(self) -> None:
        self.saved = (self.applied.spool, self.applied.received, list(self.effects))
        self.applied.committed(self.applied.received)

    @precondition(lambda self: self.is_linked)
    @rule()
    def acknowledge(self) -> None:
        ack = self.applied.due()
        if ack is not None:
            self.spool.acknowledge(ack.position)
            self.on_disk.data = {key: value for key, value in self.on_disk.data.items() if key in self.storage.data}

    @invariant()
    def once_and_in_order(self) -> None:
        assert self.effects == sorted(set(self.effects))
        assert set(self.effects) <= set(self.promised)

    def teardown(self) -> None:
        self.commit()
        if not self.is_linked:
            self.link()
        for _ in range(len(self.promised) + 2):
            self.send()
            while self.wire:
                self.arrive()
            self.save()
            self.acknowledge()
        assert self.effects == self.promised
        assert self.spool.waiting == 0


TestOverCuts = OverCuts.TestCase
TestOverCuts.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_the_machine_finds_a_spool_that_forgets() -> None:
    """What the machine above is for: a receiver that acknowledges too early loses messages."""
    machine = OverCuts()
    machine.publish(1)
    machine.commit()
    machine.link()
    machine.send()
    machine.arrive()
    machine.applied.committed(1)  # without `save`: nothing is on disk
    machine.acknowledge()
    machine.receiver_dies()
    lost = copy.copy(machine.promised)
    with pytest.raises(AssertionError):
        machine.teardown()
    assert lost == [0]
