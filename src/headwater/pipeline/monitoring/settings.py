"""What a pipeline tells others, and whom: the table `[monitoring]` of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headwater.suggestion import unknown


@dataclass(frozen=True)
class Settings:
    """`metrics` is the address, host:port, at which figures are served; elsewhere than on loopback it needs
    `metrics_token`. Without a round for `unhealthy_after` seconds, `/healthz` says so. `lineage` is where events of
    OpenLineage go: a URL, `file:///…` or `environment`, which is what OpenLineage's own variables or openlineage.yml
    say; `lineage_key` goes with them to a URL."""

    metrics: str | None = None
    metrics_token: str | None = field(default=None, repr=False)
    unhealthy_after: float = 300.0
    lineage: str | None = None
    lineage_key: str | None = field(default=None, repr=False)

    @classmethod
    def from_settings(cls, given: Mapping[str, Any]) -> Settings:
        """Raises ValueError, which says what is wrong."""
        known = [each.name for each in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise ValueError(unknown("setting of [monitoring]", name, known))
            if name == "unhealthy_after":
                if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                    raise ValueError(f"monitoring.unhealthy_after is {value!r}; it has to be seconds above 0")
            elif not isinstance(value, str) or not value:
                raise ValueError(f"monitoring.{name} is {value!r}; it has to be a text")
        return cls(**given)
