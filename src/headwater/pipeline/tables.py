"""The tables of the lake: one declaration each, from which schemas, keys and documentation are made.

Theory. A message is named by (store, position), for ever. Every table that is derived from messages carries that name
or a window of time, so each row can be recomputed and compared, and each table's commit says up to which position of
which store it contains everything (`headwater.pipeline.lake`).

    bronze ──► silver ──► gold, latest          what was measured
       │   └─► quarantine                       what could not be read, and why
       └──► completeness, operations            how well it was delivered

Needs nothing but the standard library: executors import it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from headwater.store.columns import COLUMNS


@dataclass(frozen=True)
class Column:
    """`type` is Spark's name of it (DDL)."""

    name: str
    type: str
    doc: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """`keys` name a row; `partition` is the column of dates by which files are laid out; `watermark` says in words when
    a row is final. Tables with `evolves` get further columns as payloads bring them. `made_of` names the tables whose
    rows decide this one's."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    partition: str | None = None
    watermark: str = ""
    evolves: bool = False
    made_of: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        """For Spark."""
        return ", ".join(f"`{each.name}` {each.type}{'' if each.nullable else ' NOT NULL'}" for each in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.columns)


STORE: Final = Column("store", "string", "Id of the store that gave the position.", nullable=False)
_STORED: Final = {each.name: Column(each.name, each.type, each.doc, each.nullable) for each in COLUMNS}
"""What a stored message has."""
POSITION: Final = _STORED["position"]
TOPIC: Final = _STORED["topic"]
PAYLOAD: Final = _STORED["payload"]
TIME: Final = _STORED["time"]
ARRIVAL: Final = _STORED["arrival"]
PUBLISHER: Final = _STORED["publisher"]
DAY: Final = Column("day", "date", "Of the arrival, UTC. Files are laid out by it.", nullable=False)

BRONZE: Final = Table(
    "bronze",
    "Every message as it was stored, exactly once.",
    (STORE, *_STORED.values(), DAY),
    keys=("store", "position"),
    partition="day",
    watermark="a row is final when it is there",
)

SILVER: Final = Table(
    "silver",
    "Readings that were decoded from messages; a message may have several.",
    (
        STORE,
        POSITION,
        Column("part", "int", "Number of the reading in its message, from 0.", nullable=False),
        TOPIC,
        Column("device", "string", "Who measured, by the decoder's rule for topics; else the publisher."),
        Column("metric", "string", "What was measured, by the decoder; else the last level of the topic."),
        Column("time", "timestamp", "Time of measurement.", nullable=False),
        ARRIVAL,
        Column("clock", "string", "ok, ahead or behind: how far `time` is from `arrival`.", nullable=False),
        Column("value", "double", "The reading, if it is a number."),
        Column("text", "string", "The reading, if it is text."),
        Column("data", "string", "The whole document as JSON, if there is one; parse_json(data) is a VARIANT."),
        Column("raw", "binary", "The payload, if it is neither number, text nor document."),
        Column("decoder", "string", "Name of the decoder.", nullable=False),
        DAY,
    ),
    keys=("store", "position", "part"),
    partition="day",
    watermark="a row is final when it is there",
    evolves=True,
    made_of=("bronze",),
)

QUARANTINE: Final = Table(
    "quarantine",
    "Messages that no decoder could read, as they came, with the reason; nothing is dropped.",
    (
        STORE,
        POSITION,
        TOPIC,
        PAYLOAD,
        PUBLISHER,
        TIME,
        ARRIVAL,
        Column("decoder", "string", "Name of the decoder that refused it.", nullable=False),
        Column("reason", "string", "One sentence.", nullable=False),
        DAY,
    ),
    keys=("store", "position"),
    partition="day",
    watermark="a row is final when it is there",
    made_of=("bronze",),
)

GOLD: Final = Table(
    "gold",
    "Windows of time by topic, device and metric. A window is written once, when it is final.",
    (
        Column("window_start", "timestamp", "", nullable=False),
        Column("window_end", "timestamp", "", nullable=False),
        TOPIC,
        Column("device", "string", ""),
        Column("metric", "string", ""),
        Column("count", "bigint", "Readings with a number.", nullable=False),
        Column("mean", "double", ""),
        Column("min", "double", ""),
        Column("max", "double", ""),
        Column("p50", "double", "Exact median (Spark's percentile, interpolated)."),
        Column("p95", "double", "Exact, as p50."),
        Column("first", "double", "Value of the earliest reading."),
        Column("last", "double", "Value of the latest reading."),
        Column("gaps", "int", "Silences in the window, its edges included, longer than allowed.", nullable=False),
        Column("longest_gap", "double", "Seconds of the longest silence in the window, its edges included."),
        Column(
            "flags",
            "string",
            "gap, flatline, jump; several are joined by commas; empty: nothing to say.",
            nullable=False,
        ),
        Column("why", "string", "What the flags mean here, in words and figures.", nullable=False),
        Column("day", "date", "Of the window's start, UTC. Files are laid out by it.", nullable=False),
    ),
    keys=("window_start", "topic", "device", "metric"),
    partition="day",
    watermark="final when each store's clock has passed window_end + lateness",
    made_of=("silver",),
)

_OF_RULES: Final = (
    Column("rule", "string", "Its name.", nullable=False),
    Column("action", "string", "expect, drop, quarantine or fail.", nullable=False),
    Column("checked", "bigint", "Rows that the rule was asked of.", nullable=False),
    Column("failed", "bigint", "Of these, rows that did not fulfil it.", nullable=False),
)

SILVER_RULES: Final = Table(
    "silver_rules",
    "How often each expectation of silver held, by minute of arrival. There is one if there are such expectations.",
    (
        Column("minute", "timestamp", "Minute of arrival.", nullable=False),
        *_OF_RULES,
        Column("day", "date", "Of the minute, UTC.", nullable=False),
    ),
    keys=("minute", "rule", "action"),
    partition="day",
    watermark="counts what silver has; final when each store's clock has passed the minute",
    made_of=("bronze",),
)

DROPPED: Final = Table(
    "dropped",
    "Readings that an expectation dropped: which they were, and by which rule. There is one if there are such "
    "expectations.",
    (
        STORE,
        POSITION,
        Column("part", "int", "Number of the reading in its message.", nullable=False),
        TOPIC,
        ARRIVAL,
        Column("rule", "string", "The first rule that dropped it.", nullable=False),
        Column("whole", "boolean", "Silver has no other reading of the message.", nullable=False),
        DAY,
    ),
    keys=("store", "position", "part"),
    partition="day",
    watermark="a row is final when it is there",
    made_of=("bronze",),
)

OUTCOMES: Final = Table(
    "outcomes",
    "For every store and minute of arrival, where its messages went: silver + quarantine + dropped + unaccounted = "
    "messages. Unaccounted must be 0. There is one if there are expectations of silver.",
    (
        STORE,
        Column("minute", "timestamp", "Minute of arrival at the store.", nullable=False),
        Column("messages", "bigint", "Those in bronze.", nullable=False),
        Column("silver", "bigint", "Of these, what has readings in silver.", nullable=False),
        Column("quarantine", "bigint", "Of these, what is in quarantine.", nullable=False),
        Column("dropped", "bigint", "Of these, what an expectation dropped whole.", nullable=False),
        Column("unaccounted", "bigint", "In none of the three, or in several.", nullable=False),
        Column("day", "date", "Of the minute, UTC.", nullable=False),
    ),
    keys=("store", "minute"),
    partition="day",
    watermark="final when each store's clock has passed the minute",
    made_of=("bronze", "silver", "quarantine", "dropped"),
)

GOLD_RULES: Final = Table(
    "gold_rules",
    "How often each expectation of gold held, by the windows' start. There is one if there are such expectations.",
    (
        Column("minute", "timestamp", "Start of the windows.", nullable=False),
        *_OF_RULES,
        Column("day", "date", "Of that, UTC.", nullable=False),
    ),
    keys=("minute", "rule", "action"),
    partition="day",
    watermark="final when gold's windows are",
    made_of=("silver",),
)

GOLD_QUARANTINE: Final = Table(
    "gold_quarantine",
    "Windows that an expectation keeps out of gold, with its name. There is one if there are such expectations.",
    (
        *GOLD.columns[:-1],
        Column("rule", "string", "The first rule that they failed.", nullable=False),
        GOLD.columns[-1],
    ),
    keys=GOLD.keys,
    partition="day",
    watermark="final when gold's windows are",
    made_of=("silver",),
)

LATE: Final = Table(
    "late",
    "Readings with a number that no window has: they came too late, or their clock cannot be. Counted, kept in silver.",
    (
        Column("window_start", "timestamp", "The window that they missed.", nullable=False),
        TOPIC,
        Column("behind", "bigint", "Readings that arrived after the window was final.", nullable=False),
        Column(
            "ahead", "bigint", "Readings whose time was further ahead of their arrival than allowed.", nullable=False
        ),
        Column("minute", "timestamp", "Minute of arrival.", nullable=False),
        Column("day", "date", "Of the arrival, UTC.", nullable=False),
    ),
    keys=("window_start", "topic", "minute"),
    partition="day",
    watermark="final when each store's clock has passed the minute",
    made_of=("silver",),
)

LATEST: Final = Table(
    "latest",
    "The last reading of each topic, device and metric, by time of measurement and then position; by arrival if its "
    "clock was ahead.",
    (
        TOPIC,
        Column("device", "string", ""),
        Column("metric", "string", ""),
        Column("time", "timestamp", "", nullable=False),
        ARRIVAL,
        Column("clock", "string", "ok, ahead or behind, as in silver.", nullable=False),
        Column("value", "double", ""),
        Column("text", "string", ""),
        STORE,
        POSITION,
        Column("part", "int", "Number of the reading in its message.", nullable=False),
    ),
    keys=("topic", "device", "metric"),
    watermark="always that of the last commit",
    made_of=("silver",),
)

OPEN: Final = Table(
    "gold_open",
    "Windows that are not final yet, of all definitions, by what has been decoded so far. All of it is replaced every "
    "few seconds; a window that is final is in its table instead.",
    (
        Column("windows", "string", "The table that gets the window when it is final.", nullable=False),
        *GOLD.columns[:-1],
        Column("final", "boolean", "Always false.", nullable=False),
        Column("seen", "timestamp", "The newest arrival that was looked at.", nullable=False),
    ),
    keys=("windows", *GOLD.keys),
    watermark="always that of the last commit",
    made_of=("silver",),
)

LIVE: Final = Table(
    "live",
    "What came by MQTT while it was published: the other way to the cloud, at least once.",
    (
        STORE,
        POSITION,
        TOPIC,
        Column("received", "timestamp", "When it came.", nullable=False),
        Column("day", "date", "Of that, UTC.", nullable=False),
    ),
    keys=("store", "position"),
    partition="day",
    watermark="may have doubles; completeness counts them",
)

COMPLETENESS: Final = Table(
    "completeness",
    "For every store and minute of arrival: what was made, and by which way it came. Lost must be 0.",
    (
        STORE,
        Column("minute", "timestamp", "Minute of arrival at the store.", nullable=False),
        Column("made", "bigint", "Positions that the store gave in this minute.", nullable=False),
        Column("live", "bigint", "Of these, what came by MQTT when it was published.", nullable=False),
        Column("recovered", "bigint", "Of these, what did not, and was read from the store.", nullable=False),
        Column("duplicate", "bigint", "How often something came by MQTT once more.", nullable=False),
        Column("lost", "bigint", "Made, and neither here nor to be had.", nullable=False),
        Column("erased", "bigint", "Made, and erased from the lake since. Null: from before that was counted."),
        Column("day", "date", "Of the minute, UTC.", nullable=False),
    ),
    keys=("store", "minute"),
    partition="day",
    watermark="final when the store's clock has passed the minute",
    made_of=("bronze", "live", "erased"),
)

TRAFFIC: Final = Table(
    "operations_traffic",
    "What each topic carried in each minute of arrival.",
    (
        Column("minute", "timestamp", "", nullable=False),
        TOPIC,
        STORE,
        Column("messages", "bigint", "", nullable=False),
        Column("bytes", "bigint", "Of payloads.", nullable=False),
        Column("publishers", "bigint", "Different ones.", nullable=False),
        Column("day", "date", "Of the minute, UTC.", nullable=False),
    ),
    keys=("minute", "topic", "store"),
    partition="day",
    watermark="final when the store's clock has passed the minute",
    made_of=("bronze",),
)

MEMBERS: Final = Table(
    "operations_members",
    "How the members of shared groups did in each minute, as brokers told in $SYS.",
    (
        Column("minute", "timestamp", "", nullable=False),
        Column("group", "string", "Name and filter of the shared group.", nullable=False),
        Column("member", "string", "Client id.", nullable=False),
        Column("dispatched", "bigint", "Messages in this minute."),
        Column("backlog", "double", "Mean of what it had under way."),
        Column("processing", "double", "Mean seconds for a message."),
        Column("day", "date", "Of the minute, UTC.", nullable=False),
    ),
    keys=("minute", "group", "member"),
    partition="day",
    watermark="final when the store's clock has passed the minute",
    made_of=("bronze",),
)

ADVICE: Final = Table(
    "advice",
    "What was recommended to the fabric, and on which figures.",
    (
        Column("made", "timestamp", "", nullable=False),
        Column("kind", "string", "weights, split, …", nullable=False),
        Column("subject", "string", "Which group, filter or topic.", nullable=False),
        Column("advice", "string", "As JSON, as it was sent.", nullable=False),
        Column("why", "string", "In words and figures.", nullable=False),
        Column("number", "bigint", "Grows; a receiver ignores what is not newer than what it has.", nullable=False),
    ),
    keys=("kind", "subject", "number"),
    watermark="final when it is there",
    made_of=("operations_traffic", "operations_members"),
)

DEVICES: Final = Table(
    "devices",
    "What is known of devices, and from when to when it was so: loaded by `headwater pipeline devices`. Files bring "
    "further columns, of text.",
    (
        Column("device", "string", "As silver names it.", nullable=False),
        Column("valid_from", "timestamp", "From then on it is so,", nullable=False),
        Column("valid_to", "timestamp", "and before this. Null: it still is."),
    ),
    keys=("device", "valid_from"),
    watermark="may change with each load; spans of a device do not overlap",
)

INFERRED: Final = Table(
    "inferred",
    "Which types the columns have that payloads brought, where rules infer them: decided once, and for good.",
    (
        Column("rules", "bigint", "Number of the settings of decoding for which it holds.", nullable=False),
        Column("column", "string", "Of silver.", nullable=False),
        Column("type", "string", "Spark's name of it.", nullable=False),
        Column("positions", "string", "Behind which positions it was decided: JSON by store.", nullable=False),
        Column("made", "timestamp", "When.", nullable=False),
    ),
    keys=("rules", "column"),
    watermark="final when it is there",
    made_of=("bronze",),
)

ERASED: Final = Table(
    "erased",
    "Which messages were erased from the lake, when and why: they are neither lost nor fetched again.",
    (
        STORE,
        Column("first", "bigint", "First position of a range,", nullable=False),
        Column("last", "bigint", "and its last.", nullable=False),
        Column("what", "string", "Which topics, or which condition.", nullable=False),
        Column("why", "string", "As it was said.", nullable=False),
        Column("erased", "timestamp", "When.", nullable=False),
    ),
    keys=("store", "first", "erased"),
    watermark="final when it is there",
)

FORGOTTEN: Final = Table(
    "forgotten",
    "Receipts: who was forgotten, by which tables and stores, when and why.",
    (
        Column("id", "string", "Of the receipt.", nullable=False),
        Column("what", "string", "Which topics, or which condition.", nullable=False),
        Column("why", "string", "As it was said.", nullable=False),
        Column("who", "string", "Who has asked for it, as it was said.", nullable=False),
        Column("begun", "timestamp", "When it began,", nullable=False),
        Column("done", "timestamp", "and when all was erased.", nullable=False),
        Column("messages", "bigint", "Messages that bronze had of it.", nullable=False),
        Column("tables", "string", "Rows that went, by table: JSON.", nullable=False),
        Column("stores", "string", "Messages that went, by store: JSON.", nullable=False),
        Column("up_to", "string", "The last position that was looked at in each store: JSON.", nullable=False),
        Column("files_until", "timestamp", "When files of before have gone by upkeep."),
        Column("vacuumed", "timestamp", "When they were removed at once,"),
        Column("files_removed", "bigint", "and how many were."),
    ),
    keys=("id",),
    watermark="final when it is there",
)

TABLES: Final = (
    *(BRONZE, SILVER, QUARANTINE, DROPPED, SILVER_RULES, GOLD, GOLD_QUARANTINE, GOLD_RULES, OPEN, LATE, LATEST),
    *(LIVE, COMPLETENESS, OUTCOMES, TRAFFIC, MEMBERS, ADVICE, DEVICES, INFERRED, ERASED, FORGOTTEN),
)
BY_NAME: Final = {table.name: table for table in TABLES}

# ---- further windows ---------------------------------------------------------------------------------------------

DEFINED: Final = re.compile(r"(gold|late)_([a-z][a-z0-9_]{0,30})")
"""Names of the tables of `[[windows]]`, which are not declared here."""


def gold_of(windows: str) -> Table:
    """The table of a definition of windows; "": of the one that each pipeline has."""
    return replace(GOLD, name=f"gold_{windows}", doc=f"As gold, for the windows {windows!r}.") if windows else GOLD


def late_of(windows: str) -> Table:
    """Readings that none of these windows has."""
    doc = f"As late, for the windows {windows!r}."
    return replace(LATE, name=f"late_{windows}", doc=doc) if windows else LATE


def table_of(name: str) -> Table | None:
    """By its name; None: there can be no such table."""
    if name in BY_NAME:
        return BY_NAME[name]
    found = DEFINED.fullmatch(name)
    if found is None:
        return None
    return gold_of(found[2]) if found[1] == "gold" else late_of(found[2])


def named(name: str) -> Table:
    """Of a table that there is."""
    found = table_of(name)
    assert found is not None, name
    return found


def windows_of(table: Table) -> str | None:
    """Of which definition a table has windows, or what came too late for them; None: of none."""
    if table in (GOLD, LATE):
        return ""
    found = None if table.name in BY_NAME else DEFINED.fullmatch(table.name)
    return None if found is None else found[2]
