"""All settings of a node: one model. node/settings.py says where their values come from.

Each field's description is its documentation; docs/configuration.md is made from it. `RELOADABLE`
names those that a running broker takes over on SIGHUP.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from headwater.node.access.settings import AccessSettings
from headwater.node.advice.settings import AdviceSettings
from headwater.node.bridge.settings import BridgeSettings
from headwater.node.condition_settings import ConditionSettings
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.delivery.settings import StoreSettings
from headwater.node.edge_settings import EdgeSettings
from headwater.node.forwarding.settings import ForwardSettings
from headwater.node.links.settings import ClusterSettings
from headwater.node.proxy.settings import ProxySettings
from headwater.node.settings import ConfigError, Settings, load
from headwater.node.transports.settings import ALL_ADDRESSES, ID_PREFIX, ListenerSettings
from headwater.node.web_settings import WebSettings
from headwater.routing.dispatcher_rules import check_pattern
from headwater.routing.shared import DISPATCHERS, dispatcher
from headwater.routing.topics import LONGEST_TOPIC, USUAL_LEVELS
from headwater.wire.primitives import FOR_EVER, UINT16_MAX

__all__ = ["Admin", "Config", "ConfigError", "load_config"]

KIB = 1024
MIB = 1024 * KIB
SHORTEST_TOKEN = 16
MOST_WORKERS: Final = 64


class Admin(WebSettings):
    """The admin API."""

    max_connections: int = Field(default=64, ge=1, description="As `rest.max_connections`.")
    max_connections_per_address: int = Field(default=32, ge=1, description="As `rest.max_connections_per_address`.")
    enabled: bool = Field(default=False, description="Whether the admin API is served (docs/operations.md).")
    host: str = Field(default="localhost", description="Name or address that it listens on.")
    port: int = Field(default=18830, ge=0, le=65535, description="Its TCP port; 0 takes a free one.")
    token: SecretStr = Field(
        default=SecretStr(""),
        description=f"What callers must show (`Authorization: Bearer …`), at least {SHORTEST_TOKEN} characters.",
    )
    token_file: str = Field(
        default="",
        description="A file with the token, instead of `token`; read again on SIGHUP.",
    )
    open_metrics: bool = Field(default=False, description="Whether `/metrics` may be read without the token.")

    @model_validator(mode="after")
    def _has_a_token(self) -> Self:
        secret = self.token.get_secret_value()
        if self.enabled and bool(secret) == bool(self.token_file):
            raise ValueError("the admin API needs either `token` or `token_file`")
        if secret and (len(secret) < SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable()):
            raise ValueError(f"the token must be of at least {SHORTEST_TOKEN} printable ASCII characters")
        return self


RELOADABLE: Final = frozenset(
    {
        *("terse", "allow_empty_client_id", "auto_id_prefix"),
        *("allow_anonymous", "log_level", "max_connections", "max_sessions", "connect_timeout", "max_keep_alive"),
        "max_session_memory",
        *("max_unauthenticated", "max_unauthenticated_per_address", "max_unauthenticated_memory"),
        *("max_session_expiry", "max_packet_size", "max_connect_size", "topic_alias_maximum", "response_information"),
        *("server_reference", "max_inflight", "max_queued_messages", "max_queued_bytes", "queue_full"),
        "publisher_wait",
        *("max_queue_memory", "write_timeout", "max_subscriptions", "max_retained"),
        *("max_retained_bytes", "bridges", "forward", "access"),
        *("admin.token", "admin.token_file", "admin.open_metrics"),
        "cluster.method",
    }
)
"""What a running broker takes over on SIGHUP, tables or dotted names (node/operations/reloading.py)."""
NEEDS_RESTART: Final = frozenset({"access.verify_threads"})
"""Settings of such tables that it does not."""


class Config(Settings):
    host: str = Field(default="localhost", description=f"Name or address to listen on; {ALL_ADDRESSES}.")
    port: int = Field(default=1883, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    listeners: list[ListenerSettings] = Field(
        default=[],
        description="Several listeners, each a table `[[listeners]]` with settings of its own (below). "
        "With them, there is one at `host` and `port` only if either is set.",
    )
    allow_anonymous: bool | None = Field(
        default=None,
        description="Clients that nobody has authenticated: true, false, or unset: from loopback only, and "
        "not if passwords or tokens are asked for (`access`).",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line shown."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object per line."
    )
    log_to: list[str] = Field(
        default=["stderr"],
        description="Where log lines go: any of `stderr`, `file:PATH` (opened again on SIGHUP), `syslog`, `journald`.",
    )

    workers: int = Field(
        default=1,
        ge=1,
        le=MOST_WORKERS,
        description="Processes that serve clients together, as one broker (docs/workers.md).",
    )
    max_connections: int = Field(
        default=100_000, ge=1, description="Connections at a time; more are refused with 0x89."
    )
    max_sessions: int = Field(
        default=1_000_000, ge=1, description="Sessions, with and without a connection; a new one is refused with 0x97."
    )
    max_session_memory: int = Field(
        default=128 * MIB,
        ge=0,
        description="Bytes that sessions have us keep beside messages: client ids, user names, subscriptions, wills, "
        "topic aliases, ids of open QoS 2 messages, and the objects around them; more is refused with 0x97.",
    )
    connect_timeout: float = Field(default=10.0, gt=0, description="Seconds a new connection has to send its CONNECT.")
    max_unauthenticated: int = Field(
        default=4096,
        ge=1,
        description="Sockets whose clients have not connected yet, at a time; for one more, the oldest gives way.",
    )
    max_unauthenticated_per_address: int = Field(
        default=1024, ge=1, description="The same for one address; of IPv6, the first 64 bits are one."
    )
    max_unauthenticated_memory: int = Field(
        default=64 * MIB,
        ge=4 * KIB,
        description="Bytes that are kept for all of them: parts of packets, handshakes of TLS and WebSocket, CONNECTs "
        "that are being decided on. For more, the oldest gives way.",
    )
    max_keep_alive: int = Field(
        default=0,
        ge=0,
        le=UINT16_MAX,
        description="Longest keep alive of 5.0 clients in seconds, which are told; 0 leaves it to them.",
    )
    max_session_expiry: int = Field(
        default=FOR_EVER, ge=0, le=FOR_EVER, description="Longest session expiry in seconds; 4294967295: for ever."
    )
    max_packet_size: int = Field(
        default=16 * MIB,
        ge=20,
        le=268_435_460,
        description="Largest packet taken, in bytes; larger ones end the connection (0x95).",
    )
    max_payload_size: int = Field(
        default=0,
        ge=0,
        description="Largest payload of a message taken, in bytes; a message with more is acknowledged, with 0x83 in "
        "5.0, and dropped; 0: as `max_packet_size` allows.",
    )
    max_connect_size: int = Field(
        default=512 * KIB, ge=1024, le=268_435_460, description="Largest first packet, before anybody is authenticated."
    )
    max_qos: Literal[0, 1, 2] = Field(default=2, description="Highest QoS that clients may publish with.")
    retain_available: bool = Field(default=True, description="Whether retained messages are supported.")
    wildcard_subscription_available: bool = Field(default=True, description="Whether `+` and `#` may be used.")
    shared_subscription_available: bool = Field(default=True, description="Whether `$share/…` may be used.")
    subscription_identifier_available: bool = Field(
        default=True, description="Whether subscription identifiers may be used."
    )
    receive_maximum: int = Field(
        default=1024, ge=1, le=UINT16_MAX, description="QoS 2 messages that a client may have open towards us."
    )
    topic_alias_maximum: int = Field(
        default=64, ge=0, le=UINT16_MAX, description="Topic aliases that a client may use towards us."
    )
    allow_empty_client_id: bool = Field(
        default=True, description="Whether clients without an id are given one, or refused."
    )
    auto_id_prefix: str = Field(
        default="hw-", pattern=ID_PREFIX, description="What the ids begin with that are given to such clients."
    )
    terse: bool = Field(
        default=False,
        description="Whether to say no more than the standard asks for, as Mosquitto does: no reason strings, no "
        "answer to a malformed CONNECT or a packet out of place, 0x81 for topic filters that "
        "cannot be, nothing of there being no subscribers for QoS 2, or of a PUBREL that comes again.",
    )
    response_information: str = Field(
        default="", description="Sent to clients that request response information; `%c` stands for the client id."
    )
    server_reference: str = Field(
        default="", description="Another server: every client is sent there instead of being accepted (0x9C)."
    )

    max_inflight: int = Field(
        default=1024,
        ge=1,
        le=UINT16_MAX,
        description="Unacknowledged QoS 1 and 2 messages per client, below its own Receive Maximum.",
    )
    max_queued_messages: int = Field(default=10_000, ge=0, description="Messages that wait per session.")
    max_queued_bytes: int = Field(default=64 * MIB, ge=0, description="Bytes that wait per session.")
    queue_full: Literal["drop_newest", "drop_oldest", "disconnect", "refuse"] = Field(
        default="drop_newest",
        description="What gives way when a session's queue is full: the new message, the oldest, the client, or the "
        "publisher, who is refused (0x97; 3.1.1: not read from) until there is room.",
    )
    max_queue_memory: int = Field(
        default=256 * MIB,
        ge=0,
        description="Bytes that wait in all sessions and connections together; when it is used up, messages of QoS 1 "
        "and 2 are refused (0x97; 3.1.1: their publishers are not read from).",
    )
    publisher_wait: float = Field(
        default=30.0,
        gt=0,
        description="Seconds that a 3.1.1 publisher is not read from for lack of room in queues, before its connection "
        "ends with the message unacknowledged.",
    )
    outbound_buffer: int = Field(
        default=16 * MIB,
        ge=4 * KIB,
        description="Bytes waiting for one slow reader; above, its QoS 0 messages are dropped.",
    )
    write_timeout: float = Field(
        default=60.0, gt=0, description="Seconds that a reader may take nothing at all before it is cut off."
    )
    max_subscriptions: int = Field(
        default=100_000, ge=1, description="Subscriptions per client; more are refused with 0x97."
    )
    max_topic_length: int = Field(
        default=LONGEST_TOPIC, ge=1, le=LONGEST_TOPIC, description="Bytes of a topic name or filter."
    )
    max_topic_levels: int = Field(
        default=USUAL_LEVELS, ge=1, le=LONGEST_TOPIC, description="Levels of a topic name or filter."
    )
    max_user_properties: int = Field(
        default=1000,
        ge=0,
        description="User properties of one packet; more end the connection with 0x97. All properties of a packet have "
        "128 KiB at most, whatever this says.",
    )
    max_retained: int = Field(
        default=1_000_000,
        ge=0,
        description="Retained messages; one more is refused with 0x97, or, with QoS 0 and in 3.1.1, delivered and not "
        "kept.",
    )
    max_retained_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="Bytes of retained messages: topics, payloads, properties and what the objects take; beyond, as "
        "for `max_retained`.",
    )
    overlapping: Literal["merge", "separate"] = Field(
        default="merge",
        description="A message that matches several subscriptions of a client: one copy, or one for each.",
    )
    shared_dispatcher: str = Field(
        default="adaptive",
        description=f"How a shared group's next member is chosen: one of {', '.join(sorted(DISPATCHERS))}.",
    )
    shared_dispatchers: dict[str, str] = Field(
        default={},
        description="The dispatcher of some groups, by patterns such as `$share/+/jobs/#`, in which `+` and `#` stand "
        "for levels of the group's name; the first that matches counts, else `shared_dispatcher`.",
    )
    shared_weights: dict[str, int] = Field(
        default={},
        description="Weights of shared groups' members, 1 to 100, by patterns of client ids as for file names "
        "(`*`, `?`, `[…]`); the first that matches counts, else it is 1. For the dispatchers `weighted_round_robin` "
        "and `capacity`.",
    )
    status_reports: bool = Field(
        default=True, description="Whether clients that ask for it may send status reports (docs/status-reports.md)."
    )
    report_min_interval: float = Field(
        default=0.05,
        ge=0.001,
        le=86_400,
        description="Shortest time between two status reports of a client in seconds, which it is told; "
        "what comes earlier is ignored.",
    )
    data_dir: str = Field(
        default="",
        description="Folder in which sessions and retained messages outlive the process (docs/persistence.md); "
        "empty: they do not.",
    )
    durability: Literal["sync", "async", "none"] = Field(
        default="sync",
        description="When what goes to `data_dir` is acknowledged: once it is on disk, at once (a crash may lose the "
        "last `commit_interval`), or nothing goes there.",
    )
    commit_interval: float = Field(
        default=0.05, gt=0, description="Seconds that changes may wait to be written, with durability `async`."
    )
    disk_reserve: int | None = Field(
        default=None,
        ge=0,
        description="Bytes of the disk of `data_dir` that are kept free: with less, clients that publish are not read "
        "from until there is room again. Unset: a twentieth of the disk, at least 128 MiB and at most 1 GiB; 0: none.",
    )
    queue_memory: int = Field(
        default=128 * MIB,
        ge=0,
        description="Bytes waiting for clients from which on the content of more is on disk only, if there is a "
        "`data_dir`.",
    )
    sys_interval: float = Field(default=10.0, ge=0, description="Seconds between updates of `$SYS`; 0 turns it off.")
    access: AccessSettings = Field(default=AccessSettings(), description="Who may do what (docs/access.md).")
    admin: Admin = Field(default=Admin(), description="The admin API, health and metrics over HTTP.")
    store: StoreSettings = Field(default=StoreSettings(), description="The delivery store (docs/store.md).")
    rest: RestSettings = Field(default=RestSettings(), description="REST over the delivery store (docs/rest.md).")
    cluster: ClusterSettings = Field(
        default=ClusterSettings(), description="A cluster of nodes that are one broker (docs/cluster.md)."
    )
    edge: EdgeSettings = Field(default=EdgeSettings(), description="This node's part in an edge (docs/edge-tiers.md).")
    proxy: ProxySettings = Field(
        default=ProxySettings(), description="A proxy in front of a broker of any make (docs/proxy.md)."
    )
    conditions: ConditionSettings = Field(
        default=ConditionSettings(), description="Conditions on the content of messages (docs/content-filters.md)."
    )
    advice: AdviceSettings = Field(
        default=AdviceSettings(), description="Recommendations from outside, of a pipeline say (docs/advice.md)."
    )
    broker_id: str = Field(
        default="",
        max_length=128,
        description="This broker's name in the path of bridged messages, by which loops are found; no two brokers may "
        "have the same. Empty: a random one for each start.",
    )
    bridges: list[BridgeSettings] = Field(
        default=[],
        description="Bridges to other brokers, each a table `[[bridges]]` (below; docs/bridge.md).",
    )
    forward: list[ForwardSettings] = Field(
        default=[],
        description="Other brokers that the delivery store is forwarded to, each a table `[[forward]]` (below; "
        "docs/forwarding.md).",
    )

    @model_validator(mode="after")
    def _the_store_has_a_disk(self) -> Self:
        if self.store.enabled and not self.data_dir:
            raise ValueError("the store (store.enabled) needs a folder: set `data_dir`")
        if self.store.enabled and self.durability == "none":
            raise ValueError("the store (store.enabled) needs `durability` sync or async")
        if self.rest.enabled and not self.store.enabled:
            raise ValueError("REST (rest.enabled) needs a store: set store.enabled = true")
        if self.forward and not self.store.enabled:
            raise ValueError("a forward ([[forward]]) needs a store: set store.enabled = true")
        return self

    @model_validator(mode="after")
    def _a_proxy_is_a_node(self) -> Self:
        if not self.proxy.enabled:
            return self
        if not self.cluster.enabled:
            raise ValueError("a proxy (proxy.broker) is a node of a cluster: set `cluster.name`")
        if self.store.enabled or self.bridges or self.workers > 1:
            raise ValueError("a proxy (proxy.broker) has neither a store, nor bridges, nor workers")
        return self

    @model_validator(mode="after")
    def _an_edge_is_of_a_cluster(self) -> Self:
        edge = self.edge
        if not edge.enabled:
            return self
        if not self.cluster.enabled or self.cluster.neighbours:
            raise ValueError(
                "an edge (edge.name) needs a cluster in which all nodes are linked: set `cluster.name`, and leave out "
                "`cluster.neighbours`"
            )
        if self.workers > 1:
            raise ValueError("a node of an edge (edge.name) has one process: set `workers` = 1")
        if edge.delivers and not self.store.enabled:
            raise ValueError(
                'a delivery node (edge.roles) needs a store: set store.enabled = true, or edge.roles = ["receiving"]'
            )
        if edge.follow_advice and not self.advice.enabled:
            raise ValueError("`edge.follow_advice` needs advice: set advice.enabled = true")
        if not edge.delivers and (self.store.enabled or edge.owns):
            raise ValueError("a node without the role delivery (edge.roles) has neither `edge.owns` nor a store")
        return self

    @field_validator("log_to", mode="before")
    @classmethod
    def _destinations_are_separated(cls, value: object) -> object:
        return [each.strip() for each in value.split(",")] if isinstance(value, str) else value

    @field_validator("log_to")
    @classmethod
    def _destinations_exist(cls, destinations: list[str]) -> list[str]:
        for each in destinations:
            kind, _, path = each.partition(":")
            if each not in ("stderr", "syslog", "journald") and not (kind == "file" and path):
                raise ValueError(f"{each!r} is none of stderr, file:PATH, syslog, journald")
        return destinations

    @model_validator(mode="after")
    def _remotes_have_names_of_their_own(self) -> Self:
        for what, names in (
            ("bridges", [each.name for each in self.bridges]),
            ("forwards", [each.name for each in self.forward]),
        ):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two {what} are called {name!r}")
        return self

    @field_validator("shared_weights")
    @classmethod
    def _weights_are_weights(cls, weights: dict[str, int]) -> dict[str, int]:
        for pattern, weight in weights.items():
            if not 1 <= weight <= 100:
                raise ValueError(f"the weight of {pattern!r} is not from 1 to 100")
        return weights

    @field_validator("shared_dispatchers")
    @classmethod
    def _rules_are_rules(cls, rules: dict[str, str]) -> dict[str, str]:
        for pattern, name in rules.items():
            check_pattern(pattern)
            dispatcher(name)
        return rules

    @field_validator("shared_dispatcher")
    @classmethod
    def _dispatcher_exists(cls, name: str) -> str:
        dispatcher(name)
        return name


def load_config(path: str | None, overrides: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Config:
    """The settings in a TOML file, the environment (None: that of the process) over them, and `overrides` (None: not
    given) over both; raises ConfigError."""
    return load(Config, path, os.environ if environment is None else environment, overrides).settings
