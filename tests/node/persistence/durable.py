"""A broker without sockets whose disk a test moves step by step, and correct clients of it.

The disk is a MemoryBackend: a power cut leaves what was synced, and as many of the batches written since as the test
says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from headwater.node.config import Config
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.persistence.batch import Batch, Committer
from headwater.node.persistence.journal import Journal
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.persistence.notes import Notes
from headwater.node.persistence.recovery import Recovered, recover
from headwater.store.store import Store
from headwater.wire.packets import (
    Connack,
    Connect,
    Packet,
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
from tests.node.memory import Client, MemoryBroker


class SteppedCommitter(Committer):
    """A batch is written, synced and told of when the test says so."""

    def __init__(self, backend: MemoryBackend, store: Store | None = None) -> None:
        self.backend = backend
        self.store = store
        self.notes = Notes(backend, store)
        self.stored = False
        self.batch: Batch | None = None
        self.written = False
        self.alarms = 0

    def start(self, batch: Batch) -> None:
        assert self.batch is None
        self.batch = batch
        self.stored = batch.taken is None or self.store is None
        self.written = False

    def read(self, key: bytes) -> bytes | None:
        if self.batch is not None and not self.stored:
            self.bring_to_store()
        if self.batch is not None and not self.written:
            self.write()
        return self.backend.get(key)

    def get(self, key: bytes) -> bytes | None:
        return self.backend.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.backend.scan(prefix)

    def has(self, key: bytes) -> bool:
        return self.backend.get(key) is not None

    def later(self, seconds: float) -> None:
        self.alarms += 1

    def write(self) -> None:
        assert self.batch is not None
        self.written = True
        self.backend.write(self.notes.numbered(self.batch), self.batch.deletes)

    def bring_to_store(self) -> None:
        assert self.batch is not None
        assert self.batch.taken is not None
        assert self.store is not None
        self.stored = True
        self.store.append(self.batch.taken, self.notes.note_for(self.batch))
        self.store.sync()


class DurableBroker(MemoryBroker):
    """`store`: a delivery store, which is on the same disk."""

    def __init__(
        self,
        backend: MemoryBackend | None = None,
        config: Config | None = None,
        *,
        store: Store | None = None,
        hot: bool = True,
    ) -> None:
        super().__init__(config, hot=hot)
        self.server.hot.now = time.monotonic()  # expiry is on disk by the wall clock, which is ahead of this one
        self.backend = MemoryBackend() if backend is None else backend
        self.store = store
        self.committer = SteppedCommitter(self.backend, store)
        self.journal = Journal(self.server.hot, self.server.router.retained, self.server.budget, self.committer)
        self.journal.memory = self.server.config.queue_memory
        self.server.keep_in(self.journal)
        if store is not None:
            settings = self.server.config.store
            coordinator = Coordinator(store, settings.filters, settings.max_pending, settings.max_topics)
            self.server.store_by(coordinator)
        self.prepare()
        self.recovered: Recovered = recover(self.server, self.backend, self.journal)
        self.turn()

    def prepare(self) -> None:
        """Before what is on disk is recovered."""

    def step(self) -> bool:
        """The disk does one thing more; False: it has nothing to do."""
        committer = self.committer
        if committer.batch is None:
            return False
        if not committer.stored:
            committer.bring_to_store()
            return True
        if not committer.written:
            committer.write()
            return True
        if committer.batch.promises:
            self.backend.sync()
        batch, committer.batch = committer.batch, None
        self.journal.finished(batch)
        self.turn()
        return True

    def settle(self) -> None:
        """The disk does all it has to do."""
        while self.step():
            pass

    def crash(self, keep: int | None = 0, config: Config | None = None) -> DurableBroker:
        """The power goes, and comes back: of what was not synced, `keep` batches are there (None: all)."""
        return DurableBroker(self.backend.crashed(keep), config or self.server.config)


class Device:
    """A correct client with a session that is kept: what it owes and is owed, over connections and crashes."""

    def __init__(self, client_id: str, version: int = 5) -> None:
        self.client_id = client_id
        self.version = version
        self.client: Client | None = None
        self.has_session = False
        self.welcome = False
        """CONNACK has come."""
        self.lost_sessions = 0
        self.publishing: dict[int, Packet] = {}
        self.open_ids: set[int] = set()
        self.to_answer: list[Packet] = []
        self.delivered: list[bytes] = []
        self.acknowledged: set[bytes] = set()
        self.subscribed = 0

    @property
    def online(self) -> bool:
        return self.client is not None and self.client.channel.fd >= 0

    @property
    def unread(self) -> bool:
        return self.client is not None and len(self.client.socket.sent) > self.client._read

    def connect(self, broker: MemoryBroker) -> None:
        self.client = Client(broker)
        self.client.version = self.version
        properties = Properties(session_expiry_interval=100_000) if self.version == 5 else None
        self.client.send(Connect(self.client_id, self.version, clean_start=False, properties=properties))
        self.to_answer = []
        self.welcome = False

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        packet_id = min(set(range(1, len(self.publishing) + 2)) - set(self.publishing))  # ids come back soon
        packet = Publish(topic, payload, qos, retain, False, packet_id)
        self.publishing[packet_id] = packet
        self.send(packet)

    def subscribe(self, name: str, qos: int) -> None:
        self.send(Subscribe(1, [SubscribeRequest(name, qos)]))

    def send(self, packet: Packet) -> None:
        if self.client is not None and self.online:
            self.client.send(packet)

    def read(self) -> None:
        """Take what has arrived; answers wait until `answer`."""
        if self.client is None:
            return
        for packet in self.client.packets():
            self._take(packet)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if self.has_session and not packet.session_present:
                self.lost_sessions += 1
            self.has_session = self.welcome = True
            for outgoing in list(self.publishing.values()):
                if isinstance(outgoing, Publish):
                    outgoing.dup = True
                self.send(outgoing)
        elif isinstance(packet, Suback):
            self.subscribed += 1
        elif isinstance(packet, Publish):
            self._take_message(packet)
        elif isinstance(packet, Pubrel):
            self.open_ids.discard(packet.packet_id)
            self.to_answer.append(Pubcomp(packet.packet_id))
        elif isinstance(packet, (Puback, Pubrec)):
            published = self.publishing.get(packet.packet_id)
            if isinstance(published, Publish):
                self.acknowledged.add(published.payload)
            if isinstance(packet, Puback):
                self.publishing.pop(packet.packet_id, None)
            else:
                self.publishing[packet.packet_id] = Pubrel(packet.packet_id)
                self.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self.publishing.pop(packet.packet_id, None)

    def _take_message(self, packet: Publish) -> None:
        if packet.qos < 2 or packet.packet_id not in self.open_ids:
            self.delivered.append(packet.payload)
        if packet.qos == 1:
            self.to_answer.append(Puback(packet.packet_id))
        elif packet.qos == 2:
            self.open_ids.add(packet.packet_id)
            self.to_answer.append(Pubrec(packet.packet_id))

    def answer(self, count: int = 1 << 30) -> None:
        for packet in self.to_answer[:count]:
            self.send(packet)
        self.to_answer = self.to_answer[count:]
