"""The types of columns that payloads brought (`mode = "inferred"`): decided once, noted, and the same ever after.

Theory. Which type a column has depends on the message that was first, and which was first on how messages were cut
into steps: a remake, with larger steps, would decide otherwise. So a decision is a row of `inferred` before any row of
silver has the column, and every later step begins with it. With its type known, what a message has in the column
depends on the message alone: silver made again is the same, to the bit. Other rules have decisions of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headwater.pipeline.decoding import Rules
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Positions
from headwater.pipeline.lake.made import number_of
from headwater.pipeline.lake.types import SPARK, arrow_schema
from headwater.pipeline.tables import INFERRED, SILVER


def known_columns(lake: Lake, rules: Rules) -> dict[str, str]:
    """Further columns of silver and their types, as far as they are decided."""
    if not rules.infers:
        return _columns(lake)
    decided = {row["column"]: row["type"] for row in _rows(lake) if row["rules"] == _number(rules)}
    return {**_columns(lake), **decided}


def adopt(lake: Lake, rules: Rules) -> None:
    """What silver has was decided before decisions were noted: they are noted now."""
    if rules.infers and (there := _columns(lake)):
        decide(lake, rules, there, {})


def decide(lake: Lake, rules: Rules, types: Mapping[str, str], behind: Positions) -> None:
    """The types of new columns are these, for good: on disk when this returns."""
    known = {row["column"] for row in _rows(lake) if row["rules"] == _number(rules)}
    made = datetime.now(UTC)
    said = json.dumps(behind, sort_keys=True)
    rows = [
        {"rules": _number(rules), "column": name, "type": type, "positions": said, "made": made}
        for name, type in types.items()
        if name not in known
    ]
    if rows:
        log = lake.log(INFERRED)
        batch = pa.RecordBatch.from_pylist(rows, arrow_schema(INFERRED))
        log.commit(write_files([batch], log.place, log.partition), {})


def _columns(lake: Lake) -> dict[str, str]:
    schema = lake.log(SILVER).look().schema
    return {each.name: SPARK[each.type] for each in schema if each.name not in SILVER.names}


def _number(rules: Rules) -> int:
    return number_of({"decoding": rules.said.get("decoding", [])})


def _rows(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dataset(lake.log(INFERRED)).to_table().to_pylist()
    return found
