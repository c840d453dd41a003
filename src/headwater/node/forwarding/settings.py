"""The settings of one forward: a table `[[forward]]` of the configuration file, with `[forward.tls]` in it."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwater.node.bridge.settings import RemoteSettings
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter, has_wildcard

KIB: Final = 1024
MIB: Final = 1024 * KIB
MOST_PRIORITIES: Final = 16
MOST_INFLIGHT: Final = 10_000


class ForwardSettings(RemoteSettings):
    client_id: str = Field(
        default="", description="Our client id at the remote; empty: the store's id, a dot and the forward's name."
    )
    filters: list[str] = Field(
        default=["#"],
        min_length=1,
        description="Topic filters: what of the store is forwarded. `#` does not match topics that begin with `$`.",
    )
    qos: Literal[1, 2] = Field(
        default=1,
        description="QoS of all that is forwarded, whatever it came with. 1: at least once; 2: exactly once, if the "
        "remote keeps its side of the session (docs/forwarding.md).",
    )
    local_prefix: str = Field(default="", description="What is taken off the beginning of topics, where they have it.")
    remote_prefix: str = Field(default="", description="What is then put in front of them.")
    retain: bool = Field(default=True, description="Whether retained messages are retained at the remote, too.")
    order: Literal["live-first", "strict"] = Field(
        default="live-first",
        description="`live-first`: what is new goes at once, beside a backlog, so older messages of a topic may come "
        "after newer ones. `strict`: all in the order of positions; what is new waits behind a backlog.",
    )
    priorities: list[str] = Field(
        default=[],
        max_length=MOST_PRIORITIES,
        description="Topic filters, the most urgent first: in each lane their messages go before others.",
    )
    live_within: float = Field(
        default=2.0,
        gt=0,
        description="Seconds after its arrival within which a message is new; later it is of the backlog.",
    )
    rate: float | None = Field(
        default=None, gt=0, description="Messages of a backlog a second, at most; unset: what the line takes."
    )
    rate_bytes: float | None = Field(default=None, gt=0, description="The same in bytes.")
    backlog_delay: float = Field(
        default=0.1,
        gt=0,
        description="Seconds by which a backlog may make acknowledgements later; it is slowed down until they are not.",
    )
    start: Literal["first", "next"] = Field(
        default="first",
        description="Where a new forward begins: with the first message in the store, or with the next one.",
    )
    max_inflight: int = Field(
        default=200,
        ge=1,
        le=MOST_INFLIGHT,
        description="Messages that are under way at a time, a backlog's at most half of them.",
    )
    max_inflight_bytes: int = Field(default=4 * MIB, ge=KIB, description="The same in bytes.")
    max_queued_bytes: int = Field(
        default=4 * MIB,
        ge=KIB,
        description="Bytes of messages in memory that are to go next, for each lane, and as many of those that were "
        "refused for now.",
    )
    max_ranges: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="Gaps in what is forwarded; with more, what is new waits behind the last one.",
    )
    retry_for: float = Field(
        default=86_400.0,
        ge=0,
        description="Seconds for which a message is sent again that the remote refuses for a reason that may go away; "
        "then it is given up.",
    )
    dead_letters: str = Field(
        default="", description="File for messages that were given up, lines of JSON; empty: they are only counted."
    )
    dead_letters_bytes: int = Field(
        default=64 * MIB, ge=KIB, description="Above, the file becomes FILE.1, in place of the one before."
    )

    @field_validator("filters", "priorities")
    @classmethod
    def _filters_are_filters(cls, filters: list[str]) -> list[str]:
        for filter in filters:
            try:
                check_filter(filter, ANY_LEVELS)
            except InvalidTopicFilter as error:
                raise ValueError(f"{filter!r} is no topic filter: {error}") from None
        return filters

    @field_validator("local_prefix", "remote_prefix")
    @classmethod
    def _prefix_is_plain(cls, prefix: str) -> str:
        if has_wildcard(prefix):
            raise ValueError(f"{prefix!r} has a wildcard; wildcards belong into `filters`")
        if prefix.startswith("$SYS/"):
            raise ValueError("`$SYS` is each broker's own")
        return prefix

    @model_validator(mode="after")
    def _has_one_order(self) -> Self:
        if self.priorities and self.order == "strict":
            raise ValueError('`priorities` change the order; leave them out, or set order = "live-first"')
        return self
