"""A broker without sockets that stores what it delivers, on a disk that a test moves step by step."""

from __future__ import annotations

from typing import Any

from headwater.message import POSITION_PROPERTY
from headwater.node.config import Config
from headwater.node.delivery.settings import StoreSettings
from headwater.node.persistence.memory import MemoryBackend
from headwater.store.entry import Entry
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.wire.packets import Connect, Properties, Publish, Subscribe, SubscribeRequest
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker

ASKS = [(POSITION_PROPERTY, "yes")]


class StoringBroker(DurableBroker):
    """`settings` are those of the store, `of_broker` all others, or `config` both."""

    memory_store: MemoryStore

    def __init__(
        self,
        backend: MemoryBackend | None = None,
        config: Config | None = None,
        *,
        of_broker: dict[str, Any] | None = None,
        hot: bool = True,
        kept: MemoryStore | None = None,
        **settings: Any,
    ) -> None:
        self.memory_store = MemoryStore("s") if kept is None else kept
        if config is None:
            config = Config(sys_interval=0, store=StoreSettings(**settings), **(of_broker or {}))
        super().__init__(backend, config, store=self.memory_store, hot=hot)

    def crash(self, keep: int | None = 0, config: Config | None = None) -> StoringBroker:
        self.committer.store = MemoryStore("of a dead process")
        config = config or self.server.config
        return StoringBroker(self.backend.crashed(keep), config, kept=self.memory_store, hot=self.hot_wanted)

    def rows(self) -> list[Entry]:
        return [entry for chunk in self.memory_store.select(Query()) for entry in chunk.entries()]

    def summary(self) -> list[tuple[int, str, bytes]]:
        return [(row.position, row.topic, row.payload) for row in self.rows()]


def connected(broker: DurableBroker, client_id: str, version: int = 5, *, kept: bool = False, **fields: Any) -> Client:
    """A client that has its CONNACK."""
    client = Client(broker)
    client.version = version
    properties = fields.pop("properties", None)
    if kept and version == 5:
        properties = properties or Properties()
        properties.session_expiry_interval = 1000
    client.send(Connect(client_id, version, not kept, properties=properties, **fields))
    broker.settle()
    client.packets()
    return client


def subscriber(
    broker: DurableBroker,
    client_id: str,
    name: str,
    qos: int = 0,
    *,
    asks: bool = False,
    version: int = 5,
    kept: bool = False,
    **fields: Any,
) -> Client:
    """A client that has its SUBACK; `asks` for positions."""
    client = connected(broker, client_id, version, kept=kept, **fields)
    subscribe(broker, client, name, qos, asks)
    return client


def subscribe(broker: DurableBroker, client: Client, name: str, qos: int = 0, asks: bool = False) -> None:
    properties = Properties(user_properties=list(ASKS)) if asks else None
    client.send(Subscribe(9, [SubscribeRequest(name, qos)], properties))
    broker.settle()
    client.packets()


def publish(
    client: Client,
    topic: str,
    payload: bytes = b"x",
    qos: int = 0,
    *,
    packet_id: int = 7,
    retain: bool = False,
    dup: bool = False,
    user: list[tuple[str, str]] | None = None,
) -> None:
    properties = None if user is None else Properties(user_properties=user)
    client.send(Publish(topic, payload, qos, retain, dup, packet_id if qos else 0, properties))


def positions(messages: list[Publish]) -> list[str | None]:
    """What the messages say of their positions."""
    return [position_of(message) for message in messages]


def position_of(message: Publish) -> str | None:
    found = [] if message.properties is None else message.properties.user_properties or []
    said = [value for name, value in found if name == POSITION_PROPERTY]
    assert len(said) <= 1
    return said[0] if said else None
