"""All settings of a node: one model, read from TOML, environment-free for now, overridden by flags.

Each field's description is its documentation; docs/configuration.md is made from it.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from headwater.routing.dispatcher_rules import check_pattern
from headwater.routing.shared import DISPATCHERS, dispatcher

KIB = 1024
MIB = 1024 * KIB


class ConfigError(Exception):
    """The configuration cannot be used; the text says what to change."""


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(
        default="localhost", description="Name or address to listen on; `0.0.0.0` for all IPv4, `::` for all."
    )
    port: int = Field(default=1883, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    allow_anonymous: bool | None = Field(
        default=None, description="Clients that no guard has authenticated: true, false, or unset: from loopback only."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line shown."
    )

    max_connections: int = Field(
        default=100_000, ge=1, description="Connections at a time; more are refused with 0x89."
    )
    max_sessions: int = Field(
        default=1_000_000, ge=1, description="Sessions, with and without a connection; a new one is refused with 0x97."
    )
    connect_timeout: float = Field(default=10.0, gt=0, description="Seconds a new connection has to send its CONNECT.")
    max_keep_alive: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Longest keep alive of 5.0 clients in seconds, which are told; 0 leaves it to them.",
    )
    max_session_expiry: int = Field(
        default=0xFFFFFFFF, ge=0, le=0xFFFFFFFF, description="Longest session expiry in seconds; 4294967295: for ever."
    )
    max_packet_size: int = Field(
        default=16 * MIB,
        ge=1024,
        le=268_435_460,
        description="Largest packet taken, in bytes; larger ones end the connection (0x95).",
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
        default=1024, ge=1, le=65535, description="QoS 2 messages that a client may have open towards us."
    )
    topic_alias_maximum: int = Field(
        default=64, ge=0, le=65535, description="Topic aliases that a client may use towards us."
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
        le=65535,
        description="Unacknowledged QoS 1 and 2 messages per client, below its own Receive Maximum.",
    )
    max_queued_messages: int = Field(default=10_000, ge=0, description="Messages that wait per session.")
    max_queued_bytes: int = Field(default=64 * MIB, ge=0, description="Bytes that wait per session.")
    queue_full: Literal["drop_newest", "drop_oldest", "disconnect"] = Field(
        default="drop_newest",
        description="What gives way when a session's queue is full: the new message, the oldest, the client.",
    )
    max_queue_memory: int = Field(
        default=1024 * MIB, ge=0, description="Bytes that wait in all sessions and connections together."
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
    max_topic_length: int = Field(default=65535, ge=1, le=65535, description="Bytes of a topic name or filter.")
    max_topic_levels: int = Field(default=128, ge=1, le=65535, description="Levels of a topic name or filter.")
    max_retained: int = Field(
        default=1_000_000, ge=0, description="Retained messages; one more is delivered but not kept."
    )
    max_retained_bytes: int = Field(
        default=1024 * MIB, ge=0, description="Bytes of retained payloads; what goes beyond is delivered but not kept."
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
    sys_interval: float = Field(default=10.0, ge=0, description="Seconds between updates of `$SYS`; 0 turns it off.")

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


def load_config(path: str | None, overrides: dict[str, Any]) -> Config:
    """The settings in a TOML file with `overrides` (None: not given) over them; raises ConfigError."""
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            settings = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
    settings.update({key: value for key, value in overrides.items() if value is not None})
    try:
        return Config(**settings)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error


def _explain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, Config.model_fields, n=1)
        return f"unknown setting '{key}'" + (f"; did you mean '{close[0]}'?" if close else "")
    return f"setting '{key}': {problem['msg']} (got {problem['input']!r})"
