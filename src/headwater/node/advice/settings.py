"""The settings of advice from outside: the table `[advice]` of the configuration."""

from __future__ import annotations

from pydantic import Field

from headwater.node.settings import Settings


class AdviceSettings(Settings):
    """Advice from outside."""

    enabled: bool = Field(
        default=False,
        description="Whether recommendations that are retained below `$headwater/advice/` are used (docs/advice.md).",
    )
    max_change: float = Field(
        default=8.0,
        ge=1.0,
        le=10_000.0,
        description="How many times as large or as small advice may make the share of a shared group's member.",
    )
    longest: float = Field(
        default=86_400.0,
        gt=0,
        le=31 * 86_400.0,
        description="Seconds for which advice may hold, from when it was made; what claims longer is ignored.",
    )
