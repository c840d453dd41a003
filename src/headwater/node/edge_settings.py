"""The settings of a node's part in an edge: the table `[edge]` of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from headwater.edge.owners import MOST_OWNED
from headwater.edge.ownership import check_owned
from headwater.edge.status import DELIVERY, ROLES
from headwater.node.settings import Settings
from headwater.routing.topics import InvalidTopicFilter


class EdgeSettings(Settings):
    """A node's part in an edge."""

    name: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._-]*$",
        max_length=64,
        description="Name of the edge that this node is part of; empty: it is part of none (docs/edge-tiers.md). All "
        "nodes of a cluster are part of edges, or none is.",
    )
    roles: list[Literal["receiving", "delivery"]] = Field(
        default=list(ROLES),
        min_length=1,
        description="What this node does: `receiving` takes what devices publish, `delivery` stores it and serves it.",
    )
    owns: list[str] = Field(
        default=[],
        max_length=MOST_OWNED,
        description="Topic filters that this delivery node owns at first; whatever has been moved since stays where it "
        "is.",
    )
    unowned: Literal["local", "none"] = Field(
        default="local",
        description="Where messages go whose topic nobody owns: `local`, to the delivery node of this node's edge with "
        "the smallest id, itself if it is one; `none`, they are delivered and not stored.",
    )
    hold: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="Seconds that what comes from another node waits at most for a former owner to have what was "
        "before it; then messages of one publisher may be stored in two places out of order.",
    )
    elsewhere: Literal["stay", "refer"] = Field(
        default="stay",
        description="A client that asks for positions of topics that are another node's: `stay`, it gets messages "
        "without; `refer`, it is disconnected (0x9D) with that node's address.",
    )
    follow_advice: bool = Field(
        default=False,
        description="Whether advice to split the load of this node's store (docs/advice.md) is followed: filters go to "
        "other delivery nodes of the edge. It needs `advice.enabled`.",
    )
    rest: str = Field(
        default="",
        max_length=200,
        pattern=r"^(https?://\S+)?$",
        description="URL at which others reach this node's REST; empty: this machine's name and the port of `rest`.",
    )

    @field_validator("owns")
    @classmethod
    def _may_be_owned(cls, owns: list[str]) -> list[str]:
        for filter in owns:
            try:
                check_owned(filter)
            except InvalidTopicFilter as error:
                raise ValueError(f"{filter!r} cannot be owned: {error}") from None
        return owns

    @property
    def enabled(self) -> bool:
        return bool(self.name)

    @property
    def delivers(self) -> bool:
        return DELIVERY in self.roles
