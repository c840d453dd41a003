"""Histories that a correct broker may leave behind, without a broker: drawn at random, step by step."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random

from headwater_lab.check_broker.history import (
    Connect,
    Delivery,
    Ended,
    Fault,
    History,
    Leave,
    Outcome,
    Publication,
    Read,
    Subscription,
)

TARGET = "broker:1883"
FILTERS = {
    "sub-1": ("q/#", 2),
    "sub-2": ("q/#", 1),
    "watcher": ("w/#", 2),
    "member-1": ("$share/g/s/#", 2),
    "member-2": ("$share/g/s/#", 2),
}
PUBLISHERS = ("pub-1", "pub-2")
TOPICS = ("q/a", "q/b", "s/a")
REGISTERS = ("r/1", "r/2")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@dataclass
class Session:
    client: str
    queue: deque[tuple[Publication, bool]] = field(default_factory=deque)
    """What waits, and whether it is a repetition."""
    connection: int = 0
    ghosts: list[int] = field(default_factory=list)


@dataclass
class Pretended:
    """`steps` of everything, then all is settled."""

    random: Random
    steps: int
    clock: Clock = field(default_factory=Clock)
    sessions: dict[str, Session] = field(default_factory=dict)
    pending: dict[str, deque[Publication]] = field(default_factory=lambda: defaultdict(deque))
    reading: list[Read] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    """What a read will show."""
    mortal: tuple[Connect, Publication] | None = None

    def history(self) -> History:
        self.notes = History(clock=self.clock)
        self.calm = self.random.random() < 0.5
        for client, (topic_filter, qos) in FILTERS.items():
            self.sessions[client] = Session(client)
            self._connect(self.sessions[client], present=False)
            asked = Subscription(client=client, target=TARGET, filter=topic_filter, qos=qos, granted=qos)
            self.notes.complete(self.notes.invoke(asked), Outcome.OK)
        self.clock.now += 5
        for _ in range(self.steps):
            getattr(self, self.random.choice(STEPS))()
        self.settle()
        return self.notes

    # ---- connections -------------------------------------------------------------------------------------------

    def _connect(self, session: Session, present: bool, takes_over: int | None = None) -> None:
        number = self.notes.next_connection()
        connect = Connect(
            client=session.client, target=TARGET, connection=number, present=present, takes_over=takes_over
        )
        self.notes.complete(self.notes.invoke(connect), Outcome.OK)
        session.connection = number

    def _end(self, session: Session, connection: int, by_us: bool) -> None:
        self.notes.observe(Ended(client=session.client, target=TARGET, connection=connection, by_us=by_us))

    def _some(self) -> Session:
        return self.sessions[self.random.choice(sorted(self.sessions))]

    def come_or_go(self) -> None:
        session = self._some()
        if not session.connection:
            self._connect(session, present=True)
        elif self.random.random() < 0.5:
            leave = self.notes.invoke(Leave(client=session.client, target=TARGET, connection=session.connection))
            self._end(session, session.connection, by_us=False)
            self.notes.complete(leave, Outcome.OK)
            session.connection = 0
        else:
            self._end(session, session.connection, by_us=True)
            session.connection = 0

    def take_over(self) -> None:
        session = self._some()
        if session.connection:
            session.ghosts.append(session.connection)
            self._connect(session, present=True, takes_over=session.connection)

    def end_ghost(self) -> None:
        session = self._some()
        if session.ghosts:
            self._end(session, session.ghosts.pop(), by_us=False)

    def fault(self) -> None:
        if self.calm:
            return
        fault = self.notes.invoke(Fault(name="stop"))
        self.notes.complete(fault, Outcome.OK)

    # ---- messages ----------------------------------------------------------------------------------------------

    def publish(self) -> None:
        publisher = self.random.choice(PUBLISHERS)
        topic, qos = self.random.choice(TOPICS), self.random.randrange(3)
        message = self.notes.next_message()
        sent = Publication(client=publisher, target=TARGET, message=message, topic=topic, qos=qos)
        self.notes.invoke(sent)
        if qos:
            self.pending[publisher].append(sent)
        else:
            self._route(sent)

    def write(self) -> None:
        writer = self.random.choice(PUBLISHERS)
        topic, message = self.random.choice(REGISTERS), self.notes.next_message()
        sent = Publication(client=writer, target=TARGET, message=message, topic=topic, qos=1, retain=True)
        self.pending[writer].append(self.notes.invoke(sent))

    def answer(self) -> None:
        """The broker takes the oldest of a publisher, and says so; or the connection ends and nobody knows."""
        waiting = self.pending[self.random.choice(PUBLISHERS)]
        if not waiting:
            return
        sent = waiting.popleft()
        lost = self.random.random() < 0.15
        if not lost or self.random.random() < 0.5:
            self._route(sent)
        self.notes.complete(sent, Outcome.UNKNOWN if lost else Outcome.OK)

    def _route(self, sent: Publication) -> None:
        if sent.retain:
            self.registers[sent.topic] = sent.message
            return
        kind = sent.topic[0]
        if kind == "s":
            self.sessions[self.random.choice(("member-1", "member-2"))].queue.append((sent, False))
            return
        for client, (topic_filter, _) in FILTERS.items():
            if topic_filter[0] == kind:
                self.sessions[client].queue.append((sent, False))

    def deliver(self) -> None:
        session = self._some()
        if not session.connection or not session.queue:
            return
        sent, again = session.queue.popleft()
        qos = min(sent.qos, FILTERS[session.client][1])
        self.notes.observe(
            Delivery(
                client=session.client,
                target=TARGET,
                connection=session.connection,
                message=sent.message,
                topic=sent.topic,
                qos=qos,
                dup=again,
                fresh=qos < 2 or not again,
            )
        )
        if qos and self.random.random() < 0.1 and sent.will_of is None and sent.topic[0] != "s":
            session.queue.appendleft((sent, True))  # it was not acknowledged: it comes again

    # ---- wills and registers -----------------------------------------------------------------------------------

    def live_or_die(self) -> None:
        if self.mortal is None:
            connect = Connect(client="mortal", target=TARGET, connection=self.notes.next_connection(), clean=True)
            self.notes.invoke(connect)
            message = self.notes.next_message()
            will = Publication(client="mortal", target=TARGET, message=message, topic="w/mortal", qos=2)
            will.will_of = connect.connection
            self.notes.invoke(will)
            self.notes.complete(connect, Outcome.OK)
            self.mortal = connect, will
            return
        connect, will = self.mortal
        self.mortal = None
        session = Session("mortal")
        if self.random.random() < 0.5:
            leave = self.notes.invoke(Leave(client="mortal", target=TARGET, connection=connect.connection))
            self._end(session, connect.connection, by_us=False)
            self.notes.complete(leave, Outcome.OK)
        else:
            self._end(session, connect.connection, by_us=True)
            self._route(will)

    def ask(self) -> None:
        read = Read(client=f"reader-{len(self.notes.entries)}", target=TARGET, topic=self.random.choice(REGISTERS))
        self.reading.append(self.notes.invoke(read))

    def look(self) -> None:
        """The moment at which a read takes place."""
        for read in self.reading:
            if read.invoked not in self.seen:
                self.seen[read.invoked] = self.registers.get(read.topic, 0)
                return

    def show(self) -> None:
        for read in self.reading:
            if read.invoked in self.seen:
                self.reading.remove(read)
                read.message = self.seen.pop(read.invoked)
                self.notes.complete(read, Outcome.OK)
                return

    # ---- the end -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        for session in self.sessions.values():
            while session.ghosts:
                self._end(session, session.ghosts.pop(), by_us=False)
        self.clock.now += 5
        while any(self.pending.values()):
            self.answer()
        if self.mortal is not None:
            self.live_or_die()
        for session in self.sessions.values():
            if not session.connection:
                self._connect(session, present=True)
        while any(session.queue for session in self.sessions.values()):
            self.deliver()
        while self.reading:
            self.look()
            self.show()
        for topic in REGISTERS:
            read = Read(client=f"final-{topic}", target=TARGET, topic=topic, final=True)
            self.notes.invoke(read)
            read.message = self.registers.get(topic, 0)
            self.notes.complete(read, Outcome.OK)
        self.clock.now += 20
        self.notes.observe(Ended(client="nobody", target=TARGET, connection=0, by_us=True))


STEPS = (
    *("publish",) * 6,
    *("answer",) * 7,
    *("deliver",) * 14,
    *("write",) * 3,
    *("ask", "look", "show") * 3,
    *("live_or_die",) * 3,
    *("come_or_go",) * 3,
    *("take_over", "end_ghost", "end_ghost"),
    "fault",
)
