"""The settings of conditions that subscriptions carry: the table `[conditions]` of the configuration."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from headwater.node.settings import Settings

MIB: Final = 1024 * 1024


class ConditionSettings(Settings):
    enabled: bool = Field(
        default=False,
        description="Whether subscriptions may carry a condition on the content of messages, in the user property "
        "`filter` of SUBSCRIBE or behind a `?` in the topic filter (docs/content-filters.md).",
    )
    max_payload: int = Field(
        default=65536,
        ge=0,
        le=MIB,
        description="Bytes of a payload up to which conditions look into it; a longer one has no fields.",
    )
    max_memory: int = Field(
        default=16 * MIB,
        ge=0,
        description="Bytes for what subscriptions remember of messages that they were sent, for `changed` and `limit`; "
        "beyond, what was sent longest ago counts as never sent.",
    )
