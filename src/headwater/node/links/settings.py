"""The settings of a cluster: the table `[cluster]` of the configuration, with `[cluster.tls]` in it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from headwater.node.settings import Settings
from headwater.node.transports.settings import ALL_ADDRESSES
from headwater.peering.frames.frame import MAX_CLUSTER, MAX_NODE_ID
from headwater.peering.membership.seeds import parse_seeds

MIB = 1 << 20
PORT = 11883
"""Where nodes listen for each other unless they are told otherwise."""
SHORTEST_SECRET = 16
NAME = r"^[A-Za-z0-9._-]*$"


class ClusterTls(Settings):
    certificate: str = Field(description="File with this node's certificate and those between it and the root (PEM).")
    key: str = Field(description="File with the certificate's private key (PEM, without a passphrase).")
    ca: str = Field(description="File with the authorities that may have signed the certificates of nodes (PEM).")
    crl: str = Field(
        default="",
        description="File with the lists of revoked certificates (PEM) of all authorities between nodes and the root.",
    )
    minimum_version: Literal["1.2", "1.3"] = Field(default="1.3", description="Oldest version of TLS accepted.")
    identity: Literal["cn", "san", "none"] = Field(
        default="cn",
        description="What of a node's certificate has to be its node id: the subject's common name, an alternative "
        "name (DNS), or nothing: then any certificate of `ca` may be any node.",
    )


class ClusterSettings(Settings):
    """A cluster of nodes that are one broker."""

    name: str = Field(
        default="",
        pattern=NAME,
        max_length=MAX_CLUSTER,
        description="Name of the cluster that this node is part of; empty: it is alone (docs/cluster.md).",
    )
    node: str = Field(
        default="",
        pattern=NAME,
        max_length=MAX_NODE_ID,
        description="This node's id, of which there is one in a cluster; empty: one is made up at the first start and "
        "kept in `data_dir`.",
    )
    host: str = Field(default="localhost", description=f"Name or address to listen on for nodes; {ALL_ADDRESSES}.")
    port: int = Field(default=PORT, ge=0, le=65535, description="TCP port for nodes; 0 takes a free one.")
    unix: str = Field(default="", description="Path of a Unix socket for nodes, in place of host and port.")
    advertise: str = Field(
        default="",
        description="Where other nodes reach this one, as `host:port`; empty: the address that it listens on, or, if "
        "that is all of them, this machine's name.",
    )
    join: list[str] = Field(
        default=[],
        description="Nodes to join, as `host`, `host:port` or `unix:PATH`; a name with several addresses stands for "
        "all of them. One that is reached is enough; the same list may be given to all nodes.",
    )
    join_file: str = Field(default="", description="A file with more of them, read again when it changes.")
    neighbours: list[str] = Field(
        default=[],
        description="Ids of the nodes that this one is linked with, if not with all: messages are then relayed. Each "
        "of two neighbours names the other.",
    )
    method: Literal["flood", "subscribe", "bloom"] = Field(
        default="subscribe",
        description="How this node tells others what its clients want (docs/cluster.md): everything, its filters, or "
        "a summary of them.",
    )
    subscribe_wait: float = Field(
        default=0.2,
        ge=0,
        le=10,
        description="Seconds that SUBACK waits for other nodes at most: then what is published anywhere arrives.",
    )
    session_wait: float = Field(
        default=2.0,
        ge=0.1,
        le=60,
        description="Seconds that CONNACK waits at most for a session that is at another node, and for nodes to answer "
        "whether they have it.",
    )
    session_lost: Literal["clean", "wait"] = Field(
        default="clean",
        description="What becomes of a client whose session is at a node that cannot be reached: `clean`, it gets a "
        "new session, and messages of the old one when that node is back; `wait`, it is refused until then.",
    )
    catch_up_wait: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="Seconds after which a node that starts takes clients although it reached no other node, or not "
        "all have told which sessions they have; 0: it takes clients at once.",
    )
    max_spool: int = Field(
        default=256 * MIB,
        ge=MIB,
        description="Bytes of QoS 1 and 2 messages that wait for one node at most, on disk with a `data_dir`, else in "
        "memory; then those who publish for it are paused.",
    )
    link_buffer: int = Field(
        default=16 * MIB,
        ge=64 * 1024,
        description="Bytes that wait for a node's socket at most; QoS 0 messages beyond are dropped, and counted.",
    )
    heartbeat: float = Field(default=1.0, ge=0.05, le=60, description="Seconds between two heartbeats of a link.")
    patience: float = Field(
        default=5.0, ge=0.2, le=600, description="Seconds without progress of a node after which its link is closed."
    )
    will_after: float = Field(
        default=10.0,
        ge=0.2,
        le=3600,
        description="Seconds after which another node publishes the wills of the clients of a node that has gone.",
    )
    secret: SecretStr = Field(
        default=SecretStr(""),
        description=f"What a node has to know to join, at least {SHORTEST_SECRET} characters; it is never sent.",
    )
    secret_file: str = Field(default="", description="A file with the secret, instead of `secret`.")
    tls: ClusterTls | None = Field(
        default=None, description="A table of its own, below; without it links are not encrypted."
    )

    @field_validator("join")
    @classmethod
    def _are_addresses(cls, join: list[str]) -> list[str]:
        parse_seeds(join, PORT)
        return join

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        secret = self.secret.get_secret_value()
        if secret and self.secret_file:
            raise ValueError("a cluster has a `secret` or a `secret_file`, not both")
        if secret and len(secret) < SHORTEST_SECRET:
            raise ValueError(f"the secret must have at least {SHORTEST_SECRET} characters")
        if self.unix and self.tls is not None:
            raise ValueError("TLS on a Unix socket is not supported")
        if self.patience < 2 * self.heartbeat:
            raise ValueError("`patience` has to be at least twice `heartbeat`")
        return self

    @property
    def enabled(self) -> bool:
        return bool(self.name)
