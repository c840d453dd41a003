"""The settings of the delivery store: the table `[store]` of the configuration."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, field_validator

from headwater.node.delivery.history_settings import HistorySettings
from headwater.node.settings import Settings
from headwater.routing.conditions.condition import check_condition
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter

MIB: Final = 1024 * 1024


class StoreSettings(Settings):
    """The delivery store."""

    enabled: bool = Field(
        default=False,
        description="Whether messages are stored, each with a position, before they are delivered (docs/store.md). It "
        "needs `data_dir`, in which its folder is `messages`.",
    )
    filters: list[str] = Field(
        default=["#"],
        description="Topic filters: what matches one of them is stored. `#` does not match topics that begin with `$`.",
    )
    condition: str = Field(
        default="",
        description="What the content of a message has to be for it to be stored (docs/content-filters.md); others are "
        "delivered without a position. Empty: all are stored.",
    )
    id: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$",
        description="The store's name in positions (`id:number`), for ever once it has been made. Empty: a random one.",
    )
    from_nodes: bool = Field(
        default=True,
        description="Whether messages that come from other nodes of a cluster are stored here, too. If no node does, "
        "each message is in one store: that of the node at which it was published.",
    )
    time_paths: list[str] = Field(
        default=["ts", "date"],
        description="Where in a payload of JSON the time of measurement is, such as `ts` or `data.time`; the first "
        "that is there counts, else the time of arrival.",
    )
    value_paths: list[str] = Field(
        default=["value"], description="Where in a payload of JSON the value is, by which messages can be asked for."
    )
    time_unit: Literal["auto", "s", "ms", "us", "ns"] = Field(
        default="auto", description="Of times that are numbers, since 1970; `auto` guesses it from their size."
    )
    keep_for: float = Field(
        default=7 * 86_400.0,
        ge=0,
        description="Seconds since their arrival after which messages are removed; 0: they are not.",
    )
    keep_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Bytes on disk above which the oldest messages are removed; unset: half of the disk of `data_dir`, "
        "less on one below 640 MiB; 0: no bound.",
    )
    hard_keep_for: float | None = Field(
        default=None,
        gt=0,
        description="Seconds after which they are removed even if a named reader has not read them; unset: a reader "
        "holds them back for ever.",
    )
    hard_keep_bytes: int | None = Field(
        default=None,
        gt=0,
        description="Bytes above which they are removed even if a named reader has not read them; unset: a reader "
        "holds them back for ever.",
    )
    cache_bytes: int = Field(default=32 * MIB, ge=MIB, description="Memory for what is read from the store again.")
    max_pending: int = Field(
        default=64 * MIB,
        ge=1,
        description="Bytes of messages that are not on disk yet; above, clients that publish to stored topics are not "
        "read from until they are.",
    )
    max_topics: int = Field(
        default=1_000_000, ge=1, description="Topics in the store; a message of one more is refused with 0x97."
    )
    history: HistorySettings = Field(
        default=HistorySettings(), description="Older messages in object storage (docs/store.md)."
    )

    @field_validator("filters")
    @classmethod
    def _filters_are_filters(cls, filters: list[str]) -> list[str]:
        for filter in filters:
            try:
                check_filter(filter, ANY_LEVELS)
            except InvalidTopicFilter as error:
                raise ValueError(f"{filter!r} is no topic filter: {error}") from None
        return filters

    @field_validator("condition")
    @classmethod
    def _condition_is_one(cls, text: str) -> str:
        return check_condition(text)

    @field_validator("time_paths", "value_paths")
    @classmethod
    def _paths_lead_somewhere(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not all(path.split(".")):
                raise ValueError(f"{path!r} is no path: names between dots, such as data.time")
        return paths
