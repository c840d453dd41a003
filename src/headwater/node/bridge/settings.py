"""The settings of one bridge: a table `[[bridges]]` of the configuration file, with `[[bridges.topics]]` and
`[bridges.tls]` in it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from headwater.node.settings import Settings
from headwater.routing.conditions.condition import check_condition
from headwater.routing.topics import (
    ANY_LEVELS,
    InvalidTopicFilter,
    InvalidTopicName,
    check_filter,
    check_name,
    has_wildcard,
)
from headwater.wire.primitives import FOR_EVER, UINT16_MAX

PORTS = {False: 1883, True: 8883}
"""Without and with TLS."""
WEB_PORTS = {False: 80, True: 443}
ADDRESS = re.compile(r"(?:\[([^][/\s]+)]|([^][:/\s]+))(?::(.*))?")


class Place(NamedTuple):
    host: str
    port: int


class BridgeTls(Settings):
    ca: str = Field(
        default="",
        description="File with the authorities that the remote's certificate must be of (PEM); empty: the system's.",
    )
    certificate: str = Field(default="", description="File with our own certificate, if the remote asks for one (PEM).")
    key: str = Field(default="", description="File with that certificate's private key (PEM, without a passphrase).")
    minimum_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Oldest version of TLS used.")
    check_host_name: bool = Field(
        default=True,
        description="Whether the certificate must be of the host's name; if not, anybody with a certificate of the "
        "same authorities is taken for the remote.",
    )
    alpn: str = Field(default="", description="Protocol to name in the handshake (ALPN), such as `mqtt`.")

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("`certificate` and `key` are needed both, or neither")
        return self


class BridgeTopic(Settings):
    """Topics that both sides share. The local topic is `local_prefix` and what the filter matches, the remote one
    `remote_prefix` and the same."""

    filter: str = Field(
        description="Topic filter behind the prefixes, such as `sensors/#`; empty: the prefixes are whole topics."
    )
    direction: Literal["in", "out", "both"] = Field(
        default="out", description="`out`: from here to the remote; `in`: from the remote to here."
    )
    qos: Literal[0, 1, 2] = Field(
        default=1, description="Highest QoS; a message keeps its own if that is lower, or the broker grants less."
    )
    local_prefix: str = Field(default="", description="What the topic begins with here.")
    remote_prefix: str = Field(default="", description="What the topic begins with at the remote.")
    condition: str = Field(
        default="",
        description="What the content of a message has to be to go on, in either direction (docs/content-filters.md); "
        "it is evaluated here, whatever the remote is. Empty: all go on.",
    )

    @property
    def local_filter(self) -> str:
        return self.local_prefix + self.filter

    @property
    def remote_filter(self) -> str:
        return self.remote_prefix + self.filter

    @property
    def goes_out(self) -> bool:
        return self.direction != "in"

    @property
    def comes_in(self) -> bool:
        return self.direction != "out"

    @field_validator("condition")
    @classmethod
    def _condition_is_one(cls, text: str) -> str:
        return check_condition(text)

    @model_validator(mode="after")
    def _topics_are_topics(self) -> Self:
        for side, prefix in (("local", self.local_prefix), ("remote", self.remote_prefix)):
            _check_side(side, prefix, self.filter)
        if self.comes_in and _is_of_broker(self.local_filter):
            raise ValueError("nothing can come in to `$SYS`, which is this broker's own; set `local_prefix`")
        if self.goes_out and _is_of_broker(self.remote_filter):
            raise ValueError("nothing can go out to `$SYS`, which is the remote's own; set `remote_prefix`")
        return self


def _check_side(side: str, prefix: str, filter: str) -> None:
    if has_wildcard(prefix):
        raise ValueError(f"`{side}_prefix` {prefix!r} has a wildcard; wildcards belong into `filter`")
    if not prefix and not filter:
        raise ValueError(f"`filter` is empty, so `{side}_prefix` must name a topic")
    whole = prefix + filter
    if whole.startswith("$share/"):
        raise ValueError("a bridge cannot have shared subscriptions")
    try:
        check_filter(whole, ANY_LEVELS)
    except InvalidTopicFilter as error:
        slash = ", so a `/` may be missing at the prefix's end" if prefix and not prefix.endswith("/") else ""
        raise ValueError(f"the {side} filter would be {whole!r}, and {error}{slash}") from None


def _is_of_broker(filter: str) -> bool:
    return filter == "$SYS" or filter.startswith("$SYS/")


class RemoteSettings(Settings):
    """Another broker, and how to get there: what bridges and forwards (node/forwarding) have in common."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Its name in logs, figures and client ids: letters, digits, `_`, `.`, `-`; no two have the same.",
    )
    enabled: bool = Field(default=True, description="Whether it is started.")
    addresses: list[str] = Field(
        min_length=1,
        description="Where the remote is, `host:port`; several are tried in turn. Without a port it is 1883, with TLS "
        "8883 (WebSocket: 80 and 443).",
    )
    protocol: Literal["3.1.1", "5.0"] = Field(
        default="5.0", description="Version of MQTT spoken with the remote; only 5.0 protects rings from loops."
    )
    websocket_path: str = Field(
        default="", pattern="^(/.*)?$", description="Path of WebSocket, such as `/mqtt`; empty: MQTT directly."
    )
    tls: BridgeTls | None = Field(default=None, description="A table of its own, below; without it there is no TLS.")
    client_id: str = Field(
        default="", description="Our client id at the remote; empty: this machine's name, a dot and the bridge's name."
    )
    username: str | None = Field(default=None, description="Our user name at the remote.")
    password: SecretStr = Field(default=SecretStr(""), description="Our password at the remote.")
    password_file: str = Field(
        default="", description="A file with the password, instead of `password`; read again on SIGHUP."
    )
    keep_alive: int = Field(
        default=60, ge=1, le=UINT16_MAX, description="Seconds of silence before the remote is pinged."
    )
    session_expiry: int = Field(
        default=FOR_EVER,
        ge=0,
        le=FOR_EVER,
        description="Seconds that the remote keeps our session while we are away (5.0); 4294967295: for ever.",
    )
    reconnect_first: float = Field(
        default=1.0,
        gt=0,
        description="Seconds, at most, before the first attempt to connect again; then twice as many, and so on.",
    )
    reconnect_longest: float = Field(default=60.0, gt=0, description="Seconds, at most, between two attempts.")
    max_packet_size: int = Field(
        default=0,
        ge=0,
        le=268_435_460,
        description="Largest packet sent to the remote; larger messages are dropped; 0: what the remote says.",
    )
    max_hops: int = Field(
        default=16,
        ge=1,
        le=1000,
        description="Bridges and forwards that a message may have passed; one that has passed more is dropped (5.0).",
    )

    @field_validator("addresses", mode="before")
    @classmethod
    def _one_address_is_a_list(cls, value: object) -> object:
        return value.split() if isinstance(value, str) else value

    @field_validator("addresses")
    @classmethod
    def _addresses_are_addresses(cls, addresses: list[str]) -> list[str]:
        for each in addresses:
            parse_address(each, 1883)
        return addresses

    @model_validator(mode="after")
    def _has_one_password(self) -> Self:
        if self.password.get_secret_value() and self.password_file:
            raise ValueError("give `password` or `password_file`, not both")
        if (self.password.get_secret_value() or self.password_file) and self.username is None:
            raise ValueError("a password needs a `username`")
        if self.reconnect_longest < self.reconnect_first:
            raise ValueError("`reconnect_longest` is less than `reconnect_first`")
        return self

    @property
    def places(self) -> list[Place]:
        secure = self.tls is not None
        usual = WEB_PORTS[secure] if self.websocket_path else PORTS[secure]
        return [parse_address(each, usual) for each in self.addresses]


class BridgeSettings(RemoteSettings):
    clean_start: bool = Field(
        default=False,
        description="Whether to begin anew with every connection. If not, each side keeps for the bridge what comes "
        "with QoS 1 and 2 while it is down.",
    )
    max_inflight: int = Field(
        default=100,
        ge=1,
        le=UINT16_MAX,
        description="Messages of QoS 1 and 2 that are under way at a time in each direction; the others wait in the "
        "session of the side that they come from.",
    )
    outgoing_retain: bool = Field(
        default=True, description="Whether retained messages are retained at the remote, too."
    )
    announce: bool = Field(
        default=True,
        description="Whether to say in CONNECT of 3.1.1 that this is a bridge, as Mosquitto does (`try_private`): the "
        "remote then sends nothing back and keeps the retain flag. One that does not know it is told no more.",
    )
    notifications: Literal["both", "local", "none"] = Field(
        default="both",
        description="Where the state of the bridge is published, 1 or 0, retained: at both brokers, "
        "here only, nowhere.",
    )
    notification_topic: str = Field(
        default="", description="Where to; empty: `$SYS/broker/connection/CLIENT_ID/state`, as Mosquitto has it."
    )
    topics: list[BridgeTopic] = Field(
        min_length=1,
        description="What is bridged. Of several entries that match a topic, the first counts.",
    )

    @field_validator("notification_topic")
    @classmethod
    def _topic_is_a_topic(cls, topic: str) -> str:
        if topic:
            try:
                check_name(topic, ANY_LEVELS)
            except InvalidTopicName as error:
                raise ValueError(str(error)) from None
        return topic

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _check_twice([topic.local_filter for topic in self.topics if topic.goes_out], "goes out", "local")
        _check_twice([topic.remote_filter for topic in self.topics if topic.comes_in], "comes in", "remote")
        return self


def _check_twice(filters: list[str], how: str, side: str) -> None:
    for filter in filters:
        if filters.count(filter) > 1:
            raise ValueError(f"{filter!r} ({side}) {how} by two entries of `topics`; only the first could ever count")


def parse_address(text: str, usual_port: int) -> Place:
    """`host`, `host:port` or `[IPv6 address]:port`; ValueError if it is none."""
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form host:port ([address]:port for IPv6)")
    within_brackets, name, port = found.groups()
    if port is not None and not (port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return Place(within_brackets or name, usual_port if port is None else int(port))
