"""A data folder whose log ends too early, at any byte, as after a power cut.

Theory. Commits are atomic and in order, so what a cut leaves is the broker as it was after some packet. Subscribers
that were away all the time then have a beginning of what was published, without gaps; all have the same one; what is
retained is the last of it; and the broker knows exactly those QoS 2 packet ids that belong to it, so that a publisher
that sends all its messages again completes it without doubling any. What had been acknowledged when the log was no
longer than the cut is in it.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from headwater.wire.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from headwater_lab.chaos.connection import PATIENCE, Connection
from headwater_lab.chaos.history import HEAD, Note, message_in, payload_of
from headwater_lab.chaos.lives import BrokerFailed, Lives, Serve
from headwater_lab.kill_campaign import cut_places

MESSAGES: Final = 24
"""In each of two lives: the log of the second is cut."""
BURST: Final = 4
FILTERS: Final = {
    "away-1": ["events/#", "kept/#"],
    "away-2": ["events/#", "kept/#"],
    "member": ["$share/crew/events/#"],
}
VERSIONS: Final = {"away-1": V311, "away-2": V5, "member": V5, "publisher": V5}
QOS: Final = {"away-1": 1, "away-2": 2, "member": 2}

P = TypeVar("P", bound=Packet)


class Caller:
    """A client that does one thing after the other, and remembers nothing of earlier connections."""

    def __init__(self, port: int, name: str, version: int, clean: bool = False) -> None:
        self.connection = Connection(port, version)
        self.connection.socket.settimeout(PATIENCE)
        self.messages: list[Publish] = []
        """What came, without repetitions of an open QoS 2 delivery."""
        self._open: set[int] = set()
        self._waiting: list[Packet] = []
        properties = Properties(session_expiry_interval=0 if clean else 0xFFFFFFFF) if version == V5 else None
        self.connection.send(Connect(name, version, clean, properties=properties))
        self.present = self.wait(Connack).session_present

    def wait(self, kind: type[P]) -> P:
        """The next packet of this kind; messages before it are taken and acknowledged."""
        while True:
            while self._waiting:
                packet = self._waiting.pop(0)
                if isinstance(packet, kind):
                    return packet
                self._take(packet)
            self._waiting = self.connection.receive()
            if self.connection.over and not self._waiting:
                raise BrokerFailed(f"the broker ended a connection that waited for {kind.__name__}")

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.qos < 2 or packet.packet_id not in self._open:
                self.messages.append(packet)
            if packet.qos == 1:
                self.connection.send(Puback(packet.packet_id))
            elif packet.qos == 2:
                self._open.add(packet.packet_id)
                self.connection.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._open.discard(packet.packet_id)
            self.connection.send(Pubcomp(packet.packet_id))

    def drain(self) -> list[Publish]:
        """All that came until nothing comes any more."""
        quiet = 0
        while quiet < 2:
            seen = len(self.messages), len(self._open)
            self.connection.send(Pingreq())
            self.wait(Pingresp)
            quiet = quiet + 1 if seen == (len(self.messages), len(self._open)) and not self._open else 0
        return self.messages

    def leave(self) -> None:
        self.connection.send(Disconnect())
        self.connection.socket.shutdown(socket.SHUT_WR)
        while not self.connection.over:
            self.connection.receive()
        self.connection.close()


@dataclass(slots=True)
class Recorded:
    """A data folder and what was done to it. `sizes` has how long the log was when each message was acknowledged."""

    data: Path
    notes: list[Note] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)

    def log(self) -> Path:
        """The newest one."""
        return max(self.data.rglob("*.log"), key=lambda path: path.name)

    def acknowledged(self, message: int) -> None:
        self.sizes[message] = self.log().stat().st_size


def record(folder: Path, serve: Serve) -> Recorded:
    """Two lives with messages for subscribers that are away; the second one's log is what there is to cut."""
    lives = Lives(folder, serve)
    notes: list[Note] = []
    try:
        lives.start()
        for name, filters in FILTERS.items():
            caller = Caller(lives.port, name, VERSIONS[name])
            caller.connection.send(Subscribe(1, [SubscribeRequest(each, QOS[name]) for each in filters]))
            caller.wait(Suback)
            caller.leave()
        _publish(lives.port, notes, lambda message: None)
        lives.kill()
        lives.start()
        recorded = Recorded(lives.data, notes)
        _publish(lives.port, notes, recorded.acknowledged)
    finally:
        lives.kill()
    return recorded


def _publish(port: int, notes: list[Note], acknowledged: Callable[[int], None]) -> None:
    """QoS 1 and 2 in turns, some retained, some in bursts; what has QoS 2 is never released."""
    publisher = Caller(port, "publisher", V5)
    unanswered: list[Note] = []
    first = len(notes) + 1
    for message in range(first, first + MESSAGES):
        retain = message % 3 == 0
        topic = f"kept/{message % 2}" if retain else f"events/{message % 4}"
        note = Note(message, "publisher", topic, 1 + message // 2 % 2, retain, HEAD + message)
        notes.append(note)
        unanswered.append(note)
        publisher.connection.send(packet_of(note))
        if message % (2 * BURST) < BURST or message == first + MESSAGES - 1:
            for each in unanswered:
                publisher.wait(Puback if each.qos == 1 else Pubrec)
                acknowledged(each.message)
            unanswered = []
    publisher.leave()


def packet_of(note: Note, dup: bool = False) -> Publish:
    return Publish(note.topic, payload_of(note.message, note.size), note.qos, note.retain, dup, note.message)


class CutFolder:
    """A copy of the folder, cut; a broker on it; what is wrong."""

    def __init__(self, recorded: Recorded, folder: Path, cut: int, serve: Serve) -> None:
        self.recorded = recorded
        self.cut = cut
        shutil.copytree(recorded.data, folder / "data")
        with (folder / "data" / recorded.log().relative_to(recorded.data)).open("r+b") as log:
            log.truncate(cut)
        self.lives = Lives(folder, serve)
        self.wrong: list[str] = []
        self.kept = 0
        """How many of the messages are there."""

    def examine(self) -> None:
        try:
            self.lives.start()
            callers = {name: Caller(self.lives.port, name, VERSIONS[name]) for name in FILTERS}
            self._check_beginning(callers)
            self._check_retained()
            self._check_completion(callers)
        except (BrokerFailed, OSError) as error:
            self.wrong.append(str(error))
        finally:
            self.lives.kill()

    def _check_beginning(self, callers: dict[str, Caller]) -> None:
        for name, caller in callers.items():
            if not caller.present:
                self.wrong.append(f"the session of {name} is gone")
        there = [message_in(packet.payload) for packet in callers["away-1"].drain()]
        self.kept = len(there)
        if there != list(range(1, self.kept + 1)):
            self.wrong.append(f"away-1 has no beginning: {there}")
        for name in ("away-2", "member"):
            got = [message_in(packet.payload) for packet in callers[name].drain()]
            expected = [note.message for note in self._beginning() if name != "member" or not note.retain]
            if got != expected:
                self.wrong.append(f"{name} has {got}, and away-1 {there}")
        for message, size in self.recorded.sizes.items():
            if size <= self.cut and message > self.kept:
                self.wrong.append(f"message {message} was acknowledged when the log had {size} bytes")

    def _beginning(self) -> list[Note]:
        return self.recorded.notes[: self.kept]

    def _check_retained(self) -> None:
        probe = Caller(self.lives.port, "probe", V5, clean=True)
        probe.connection.send(Subscribe(1, [SubscribeRequest("kept/#")]))
        probe.wait(Suback)
        found = {packet.topic: message_in(packet.payload) for packet in probe.drain()}
        expected = {note.topic: note.message for note in self._beginning() if note.retain}
        if found != expected:
            self.wrong.append(f"retained is {found} instead of {expected}")

    def _check_completion(self, callers: dict[str, Caller]) -> None:
        """The publisher has had no acknowledgement, and sends all that has QoS 2 again."""
        publisher = Caller(self.lives.port, "publisher", V5)
        if not publisher.present:
            self.wrong.append("the session of the publisher is gone")
        again = [note for note in self.recorded.notes if note.qos == 2]
        for note in again:
            publisher.connection.send(packet_of(note, dup=True))
        for _ in again:
            publisher.wait(Pubrec)
        for name in ("away-2", "member"):
            got = [message_in(packet.payload) for packet in callers[name].drain() if packet.qos == 2]
            expected = [note.message for note in again if name != "member" or not note.retain]
            if sorted(got) != expected:
                self.wrong.append(f"{name} has {sorted(got)} in the end, of QoS 2 messages {expected}")


@dataclass(slots=True)
class Sweep:
    size: int
    cuts: int = 0
    lengths: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


def sweep(folder: Path, serve: Serve, cuts: int, seed: int) -> Iterator[Sweep]:
    """Cut at every byte, or at so many random ones, the ends among them; yields the sums after each."""
    recorded = record(folder / "recorded", serve)
    size = recorded.log().stat().st_size
    sums = Sweep(size)
    longest = 0
    for cut in cut_places(size, cuts, seed):
        copy = folder / f"cut-{cut}"
        trial = CutFolder(recorded, copy, cut, serve)
        trial.examine()
        if trial.kept < longest:
            trial.wrong.append(f"a longer log has less: {trial.kept} messages, and there were {longest}")
        longest = max(longest, trial.kept)
        sums.cuts += 1
        sums.lengths.add(trial.kept)
        sums.failures += [f"cut at byte {cut} of {size}: {text}" for text in trial.wrong]
        if not trial.wrong:
            shutil.rmtree(copy)
        yield sums
