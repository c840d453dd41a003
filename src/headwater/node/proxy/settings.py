"""The settings of a proxy: the table `[proxy]` of the configuration, with `[proxy.tls]` in it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from headwater.node.bridge.settings import BridgeTls
from headwater.node.settings import Settings
from headwater.peering.membership.seeds import Seed, parse_seed
from headwater.wire.primitives import UINT16_MAX

MIB = 1 << 20
PORTS = {"mqtt": 1883, "mqtts": 8883}


class ProxySettings(Settings):
    """A node whose only client is a broker of any make, the home broker (docs/proxy.md)."""

    broker: str = Field(
        default="",
        description="The home broker, as `host`, `host:port`, or `mqtts://host:port` with TLS; empty: this node is no "
        "proxy.",
    )
    username: str = Field(default="", description="User name of the proxy's own client at the home broker.")
    password: SecretStr = Field(default=SecretStr(""), description="Its password.")
    password_file: str = Field(default="", description="A file with the password, instead of `password`.")
    tls: BridgeTls | None = Field(
        default=None, description="A table of its own, as `[bridges.tls]`; `mqtts://` without it: the system's roots."
    )
    listen: list[str] = Field(
        default=["localhost:1883"],
        description="Where clients of the home broker connect to the proxy, as `host:port` or `port`.",
    )
    client_id: str = Field(
        default="",
        max_length=256,
        description="Client id of the own client; empty: `headwater-proxy-` and the node's id.",
    )
    protocol: Literal["auto", "5.0", "3.1.1-bridge", "3.1.1"] = Field(
        default="auto",
        description="Version of MQTT spoken with the home broker, `3.1.1-bridge` as bridges of Mosquitto do; `auto`: "
        "the first of these that it takes.",
    )
    keep_alive: int = Field(
        default=30, ge=1, le=UINT16_MAX, description="Seconds of silence after which the home broker is pinged."
    )
    session_expiry: int = Field(
        default=86_400,
        ge=1,
        description="Seconds that the home broker keeps what comes for the own client while the proxy is away, where "
        "that has a `data_dir`.",
    )
    catch: Literal["wanted", "all"] = Field(
        default="wanted",
        description="What the own client subscribes to: what other nodes want, or everything.",
    )
    max_filters: int = Field(
        default=1000,
        ge=2,
        description="Filters that it subscribes to at most; if other nodes want more, it is everything.",
    )
    echo: Literal["auto", "property", "count", "paper"] = Field(
        default="auto",
        description="How it tells what comes back of what it handed over: `auto`, No Local if the home broker can, "
        "else by a user property (5.0) or by counting (3.1.1); `paper`: by a memory of digests, which loses messages "
        "that are the same (for comparison).",
    )
    echo_memory: int = Field(default=16 * MIB, ge=1024, description="Bytes of what was handed over and may come back.")
    fence_interval: float = Field(
        default=1.0, ge=0.01, le=86_400, description="Seconds after which echoes that did not come are given up."
    )
    echo_seconds: float = Field(default=5.0, gt=0, description="Seconds that `paper` remembers a message.")
    retained: bool = Field(
        default=True, description="Whether retained messages of the home broker and of other nodes are made the same."
    )
    sessions: Literal["home", "clean"] = Field(
        default="home",
        description="What becomes of a client whose session is at the broker of a proxy that cannot be reached: "
        "`home`, it is refused until then; `clean`, it gets a new session at this proxy's broker.",
    )
    groups: Literal["broker", "proxy"] = Field(
        default="broker",
        description="Who chooses the members of shared groups: `broker`, each home broker among its own clients; "
        "`proxy`, the proxies, by load, among all clients of the cluster.",
    )
    session_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="TCP port on `cluster.host` at which other proxies bring clients whose session is here; 0 takes a "
        "free one.",
    )
    max_session_homes: int = Field(
        default=64 * MIB,
        ge=1024,
        description="Bytes of what is known of sessions at the home broker, and as many of those at others'; clients "
        "of sessions beyond are not led to them.",
    )
    send_proxy: Literal["", "v1", "v2"] = Field(
        default="",
        description="Whether relayed connections tell the home broker their client's address: a PROXY header of this "
        "version comes first; empty: none.",
    )

    @field_validator("broker")
    @classmethod
    def _is_an_address(cls, broker: str) -> str:
        if broker:
            home_of(broker)
        return broker

    @field_validator("listen")
    @classmethod
    def _are_places(cls, listen: list[str]) -> list[str]:
        for each in listen:
            place_of(each)
        return listen

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.password.get_secret_value() and self.password_file:
            raise ValueError("a proxy has a `password` or a `password_file`, not both")
        if not self.username and (self.password.get_secret_value() or self.password_file):
            raise ValueError("`password` needs a `username`")
        return self

    @property
    def enabled(self) -> bool:
        return bool(self.broker)

    @property
    def home(self) -> Seed:
        return home_of(self.broker)

    @property
    def places(self) -> list[tuple[str, int]]:
        return [place_of(each) for each in self.listen]

    @property
    def is_secure(self) -> bool:
        return self.tls is not None or self.broker.startswith("mqtts://")


def home_of(broker: str) -> Seed:
    """Raises ValueError."""
    scheme, is_url, rest = broker.rpartition("://")
    if is_url and scheme not in PORTS:
        raise ValueError(f"{broker!r} begins with neither mqtt:// nor mqtts://")
    if "@" in rest:
        raise ValueError("the user name belongs into `username`, the password into `password`")
    return parse_seed(rest.rstrip("/"), PORTS[scheme or "mqtt"])


def place_of(place: str) -> tuple[str, int]:
    """Host and port to listen on. Raises ValueError."""
    if place.isascii() and place.isdigit():
        place = f"localhost:{place}"
    host, _, port = place.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > UINT16_MAX:
        raise ValueError(f"{place!r} is neither a port nor host:port")
    return host.strip("[]"), int(port)
