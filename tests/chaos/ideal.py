"""Histories as a faultless broker would leave them, kills included: for tests of the checker.

It does what it is told in one step and forgets nothing that it has acknowledged. A kill undoes nothing here, but it may
come between any step and its acknowledgement, so that clients repeat themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from headwater.routing.topics import matches, split_shared
from headwater_lab.chaos.history import (
    HEAD,
    Acknowledged,
    Asked,
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
    Shown,
    Started,
    Subscribed,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
)

TOPICS = ["t/0", "t/1", "t/2"]
KEPT = ["k/0", "k/1"]
MEMBERS = {"member-1": 2, "member-2": 2}
GROUP = "$share/g/t/#"


@dataclass
class Session:
    present: bool = False
    connected: bool = False
    subscriptions: dict[str, int] = field(default_factory=dict)
    queue: list[tuple[Note, int]] = field(default_factory=list)
    flying: list[tuple[Note, int]] = field(default_factory=list)


class Ideal:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.history = History()
        self.now = 0.0
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, int] = {}
        self.open: dict[str, list[Note]] = {"pub-1": [], "pub-2": []}
        self.routed: set[int] = set()
        self.wills: dict[str, Note] = {}
        self.clients = {"sub-1": {"t/#": 1}, "sub-2": {"t/0": 2, "t/1": 2}, "churn": {}, "watch": {"w": 2, "k/#": 2}}
        self.clients |= {name: {GROUP: qos} for name, qos in MEMBERS.items()}

    def run(self, steps: int) -> History:
        self.note(Started(self.now))
        for client in (*self.clients, *self.open):
            self.connect(client)
        actions = (
            [self.publish] * 6 + [self.deliver] * 8 + [self.come_or_go, self.churn, self.will, self.look, self.kill]
        )
        for _ in range(steps):
            self.random.choice(actions)()
        self.drain()
        return self.history

    def note(self, event: Event) -> None:
        self.now += 0.001
        event.at = self.now
        self.history.add(event)

    # ---- connections -------------------------------------------------------------------------------------------

    def connect(self, client: str) -> None:
        session = self.sessions.setdefault(client, Session())
        self.note(Connecting(0, client, False, None, 0))
        self.note(Connected(0, client, session.present))
        session.present = session.connected = True
        for topic_filter, qos in self.clients.get(client, {}).items():
            if topic_filter not in session.subscriptions:
                self.subscribe(client, topic_filter, qos)
        for note in self.open.get(client, []):
            self.send(note)
        if client in self.open:
            self.acknowledge(client)

    def subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        self.note(Subscribing(0, client, topic_filter, qos))
        self.sessions[client].subscriptions[topic_filter] = qos
        self.note(Subscribed(0, client, topic_filter))

    def disconnect(self, client: str) -> None:
        session = self.sessions[client]
        session.connected = False
        session.queue = session.flying + session.queue
        session.flying = []
        self.note(Disconnected(0, client))

    def come_or_go(self) -> None:
        client = self.random.choice(list(self.clients))
        if self.sessions[client].connected:
            self.disconnect(client)
        else:
            self.connect(client)

    def kill(self) -> None:
        for client, session in self.sessions.items():
            if session.connected:
                self.disconnect(client)
        self.note(Killed(0, "somewhere"))
        self.note(Started(0))
        for client, note in list(self.wills.items()):
            del self.wills[client]
            self.route(note)
        for client in self.open:
            self.connect(client)

    def will(self) -> None:
        """A client with a will comes; it is killed with the broker, or goes."""
        if "testator" in self.wills:
            del self.wills["testator"]
            self.note(Leaving(0, "testator", False))
            self.disconnect("testator")
        note = self.history.note(Note(self.history.next_message(), "testator", "w", 2, will=True))
        self.note(Connecting(0, "testator", True, 0, note.message))
        self.note(Connected(0, "testator", False))
        self.sessions["testator"] = Session(connected=True)
        self.wills["testator"] = note

    # ---- messages ----------------------------------------------------------------------------------------------

    def publish(self) -> None:
        client = self.random.choice(list(self.open))
        retain = client == "pub-2" and self.random.random() < 0.3
        topic = self.random.choice(KEPT if retain else TOPICS)
        qos = 1 if retain else self.random.choice((1, 2))
        size = 0 if retain and self.random.random() < 0.2 else HEAD
        note = self.history.note(Note(self.history.next_message(), client, topic, qos, retain, size))
        self.open[client].append(note)
        self.send(note)
        if self.random.random() < 0.9:
            self.acknowledge(client)

    def send(self, note: Note) -> None:
        self.note(Sent(0, note.message))
        if note.message not in self.routed or note.qos == 1:
            self.route(note)

    def route(self, note: Note) -> None:
        self.routed.add(note.message)
        if note.retain:
            self.retained[note.topic] = note.message if note.size else 0
        for client, session in self.sessions.items():
            for topic_filter, qos in session.subscriptions.items():
                if client not in MEMBERS and matches(topic_filter, note.topic):
                    session.queue.append((note, min(qos, note.qos)))
        if matches(split_shared(GROUP)[1], note.topic):
            member = self.random.choice(list(MEMBERS))
            self.sessions[member].queue.append((note, min(MEMBERS[member], note.qos)))

    def acknowledge(self, client: str) -> None:
        for note in self.open[client]:
            self.note(Acknowledged(0, note.message))
        self.open[client] = []

    def deliver(self) -> None:
        client = self.random.choice(list(self.clients))
        session = self.sessions[client]
        if session.connected and session.queue:
            note, qos = session.queue.pop(0)
            number = note.message if note.size else 0
            self.note(Received(0, client, number, note.topic, qos, False, False, True, None))
            if qos == 1:
                session.flying.append((note, qos))
        if session.flying and self.random.random() < 0.8:
            session.flying = []

    def churn(self) -> None:
        session = self.sessions["churn"]
        topic_filter = self.random.choice(TOPICS)
        if not session.connected:
            return
        if topic_filter in session.subscriptions:
            self.note(Unsubscribing(0, "churn", topic_filter))
            del session.subscriptions[topic_filter]
            self.note(Unsubscribed(0, "churn", topic_filter))
        else:
            self.subscribe("churn", topic_filter, 2)

    def look(self) -> None:
        self.note(Asked(0, "probe", "k/#"))
        asked = len(self.history.events) - 1
        found = {topic: message for topic, message in self.retained.items() if message}
        self.note(Shown(0, "probe", "k/#", asked, found))

    def drain(self) -> None:
        for client in self.open:
            self.acknowledge(client)
        for client in self.clients:
            if not self.sessions[client].connected:
                self.connect(client)
        while any(self.sessions[client].queue for client in self.clients):
            self.deliver()
        self.look()
