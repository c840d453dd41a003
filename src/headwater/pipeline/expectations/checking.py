"""Expectations asked of a batch of rows, on executors: what stays, what goes where, and how often each rule held.

Theory. All rules are asked of all rows, before any row goes: what a rule counts does not depend on the others. A
message of which a reading fails a rule that quarantines goes to quarantine whole, as messages do that no decoder can
read. Of the others, readings that fail a rule that drops are left out. So each message is in silver, in quarantine, or
was dropped whole, whatever the rules are; the first rule that says so is named.

Needs pyarrow and numpy: executors import it. Conditions have been compiled on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from headwater.pipeline.decoding.batches import Decoded
from headwater.pipeline.decoding.schemas import QUARANTINED, arrow_schema
from headwater.pipeline.expectations.rule import DECIDING, DROP, FAIL, QUARANTINE, Expectation, ExpectationError
from headwater.pipeline.tables import (
    DROPPED,
    GOLD,
    GOLD_QUARANTINE,
    GOLD_RULES,
    OUTCOMES,
    SILVER,
    SILVER_RULES,
    Table,
)

MINUTE: Final = 60_000_000
EXAMPLE: Final = "example"
"""A column of counts beside the table's: a row that failed, in words; null unless the rule stops the pipeline."""
SEEN: Final = 80
"""Characters of a value that are shown."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Checks:
    """The expectations of one table. Can be pickled."""

    rules: tuple[Expectation, ...] = ()
    _known: dict[tuple[int, str], bool] = field(default_factory=dict, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def have(self, *actions: str) -> bool:
        return any(rule.action in actions for rule in self.rules)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those that are filled beside the table that is checked, in the pass that fills it."""
        if not self.rules:
            return ()
        if self.rules[0].table == SILVER.name:
            return (*((DROPPED,) if self.have(DROP) else ()), SILVER_RULES)
        return (*((GOLD_QUARANTINE,) if self.have(QUARANTINE) else ()), GOLD_RULES)

    @property
    def further(self) -> tuple[Table, ...]:
        """Those that are derived of it later."""
        return (OUTCOMES,) if self.rules and self.rules[0].table == SILVER.name else ()

    def failed(self, rows: pa.RecordBatch) -> list[tuple[Mask, Mask]]:
        """For each rule, which rows it was asked of, and which of these do not fulfil it."""
        conditions = [rule.expression for rule in self.rules if rule.expression is not None]
        answers = iter(_evaluated(rows, conditions))
        topics = _Topics(rows) if any(rule.filters for rule in self.rules) else None
        found = []
        for number, rule in enumerate(self.rules):
            holds = next(answers) if rule.expression is not None else _asked_of_function(rule, rows)
            asked = np.ones(rows.num_rows, bool)
            if rule.filters and topics is not None:
                asked = topics.mask(lambda topic, number=number, rule=rule: self._is_about(number, rule, topic))
            found.append((asked, asked & ~holds))
        return found

    def _is_about(self, number: int, rule: Expectation, topic: str) -> bool:
        known = self._known.get((number, topic))
        if known is None:
            if len(self._known) > 100_000:
                self._known.clear()
            known = self._known[(number, topic)] = rule.is_about(topic)
        return known


NO_CHECKS: Final = Checks()


class _Topics:
    def __init__(self, rows: pa.RecordBatch) -> None:
        found = rows.column("topic").dictionary_encode()
        self._names: list[str] = found.dictionary.to_pylist()
        self._indices = found.indices.to_numpy(zero_copy_only=False)

    def mask(self, wanted: Any) -> Mask:
        if not self._names:
            return np.zeros(len(self._indices), bool)
        found: Mask = np.array([wanted(each) for each in self._names], bool)[self._indices]
        return found


def _evaluated(rows: pa.RecordBatch, conditions: Sequence[Any]) -> Iterable[Mask]:
    """All conditions in one pass; what is null does not hold."""
    if not conditions:
        return []
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows])))
    names = [str(number) for number in range(len(conditions))]
    wanted = acero.Declaration("project", acero.ProjectNodeOptions(list(conditions), names), [source])
    found = wanted.to_table(use_threads=False)
    return [_mask(column) for column in found.columns]


def _mask(holds: Any) -> Mask:
    found: Mask = pc.fill_null(holds, False).to_numpy(zero_copy_only=False).astype(bool)
    return found


def _asked_of_function(rule: Expectation, rows: pa.RecordBatch) -> Mask:
    """A user's function gets the batch, and answers with as many truths."""
    function = rule.function()
    try:
        found = function(rows)
        holds = found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found, pa.bool_())
        mask = _mask(holds)
    except Exception as error:
        raise ExpectationError(
            f"expectation {rule.name}: {rule.said} failed: {type(error).__name__}: {error}"
        ) from error
    if len(mask) != rows.num_rows:
        raise ExpectationError(
            f"expectation {rule.name}: {rule.said} gave {len(mask)} answers for {rows.num_rows} rows"
        )
    return mask


# ---- readings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """What a batch of messages becomes."""

    readings: pa.RecordBatch
    quarantined: pa.RecordBatch
    dropped: pa.RecordBatch
    counts: pa.RecordBatch


def check_readings(messages: pa.RecordBatch, decoded: Decoded, checks: Checks) -> Checked:
    """`messages` are bronze's, of which `decoded` was made."""
    rows = decoded.readings
    failed = checks.failed(rows)
    counts = _counts(rows, "arrival", checks, failed)
    if not rows.num_rows or not any(
        mask.any() for rule, (_, mask) in _pairs(checks, failed) if rule.action in DECIDING
    ):
        return Checked(rows, decoded.quarantined, _EMPTY, counts)
    number = _message_numbers(rows)
    by_rule = _first_failed(checks, failed, QUARANTINE)
    away = np.unique(number[by_rule >= 0])
    is_away = np.isin(number, away)
    drop = _first_failed(checks, failed, DROP)
    is_dropped = (drop >= 0) & ~is_away
    stays = ~is_away & ~is_dropped
    quarantined = decoded.quarantined
    if len(away):
        quarantined = pa.concat_batches([quarantined, _to_quarantine(messages, rows, checks, by_rule)])
    return Checked(
        rows.filter(pa.array(stays)), quarantined, _dropped(rows, checks, drop, is_dropped, stays, number), counts
    )


def _pairs(checks: Checks, failed: Sequence[tuple[Mask, Mask]]) -> Iterable[tuple[Expectation, tuple[Mask, Mask]]]:
    return zip(checks.rules, failed, strict=True)


def _first_failed(checks: Checks, failed: Sequence[tuple[Mask, Mask]], action: str) -> Any:
    """For each row the number of the first rule with this action that it failed; -1: none."""
    found = np.full(len(failed[0][1]), -1)
    for number in reversed(range(len(failed))):
        if checks.rules[number].action == action:
            found[failed[number][1]] = number
    return found


def _message_numbers(rows: pa.RecordBatch) -> Any:
    """Readings of a message lie together: of each, which message it is of, from 0."""
    positions = rows.column("position").to_numpy()
    stores = rows.column("store").dictionary_encode().indices.to_numpy()
    changes = (positions[1:] != positions[:-1]) | (stores[1:] != stores[:-1])
    return np.concatenate(([0], np.cumsum(changes)))


def _to_quarantine(messages: pa.RecordBatch, rows: pa.RecordBatch, checks: Checks, by_rule: Any) -> pa.RecordBatch:
    """The messages as they came, with the first rule that a reading of them failed."""
    hit = np.flatnonzero(by_rule >= 0)
    why: dict[tuple[str, int], tuple[int, str]] = {}
    taken = rows.select(["store", "position", "decoder"]).take(pa.array(hit)).to_pylist()
    for row, number in zip(taken, by_rule[hit].tolist(), strict=True):
        key = (row["store"], row["position"])
        why[key] = min(why.get(key, (number, row["decoder"])), (number, row["decoder"]))
    near = messages.filter(pc.is_in(messages.column("position"), pa.array(sorted({key[1] for key in why}), pa.int64())))
    made = []
    for row in near.to_pylist():
        found = why.get((row["store"], row["position"]))
        if found is not None:
            rule = checks.rules[found[0]]
            made.append({**row, "decoder": found[1], "reason": f"expectation {rule.name}: {_short(rule.said)}"})
    return pa.RecordBatch.from_pylist([{name: row[name] for name in QUARANTINED.names} for row in made], QUARANTINED)


def _dropped(rows: pa.RecordBatch, checks: Checks, drop: Any, gone: Mask, stays: Mask, number: Any) -> pa.RecordBatch:
    if not gone.any():
        return _EMPTY
    left = np.isin(number, np.unique(number[stays]))
    names = pa.array([checks.rules[each].name for each in drop[gone].tolist()], pa.string())
    found = rows.filter(pa.array(gone))
    columns = {"rule": names, "whole": pa.array(~left[gone])}
    return pa.RecordBatch.from_arrays(
        [columns[name] if name in columns else found.column(name) for name in DROPPED.names],
        schema=arrow_schema(DROPPED),
    )


_EMPTY: Final = pa.RecordBatch.from_pylist([], arrow_schema(DROPPED))


# ---- windows -----------------------------------------------------------------------------------------------------


def check_windows(rows: pa.RecordBatch, checks: Checks) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch]:
    """Of rows of gold: those that stay, those that are quarantined, and the counts."""
    failed = checks.failed(rows)
    counts = _counts(rows, "window_start", checks, failed)
    by_rule = _first_failed(checks, failed, QUARANTINE)
    is_away = by_rule >= 0
    stays = ~is_away & (_first_failed(checks, failed, DROP) < 0)
    away = rows.filter(pa.array(is_away))
    names = pa.array([checks.rules[each].name for each in by_rule[is_away].tolist()], pa.string())
    columns = [names if name == "rule" else away.column(name) for name in GOLD_QUARANTINE.names]
    schema = arrow_schema(GOLD_QUARANTINE)
    quarantined = pa.RecordBatch.from_arrays(
        [each.cast(f.type) for each, f in zip(columns, schema, strict=True)], schema=schema
    )
    return rows.filter(pa.array(stays)), quarantined, counts


# ---- counts ------------------------------------------------------------------------------------------------------

COUNTED: Final = pa.schema([*arrow_schema(SILVER_RULES), pa.field(EXAMPLE, pa.string())])
NAMES: Final = {
    SILVER.name: "message {store}:{position} of {topic}",
    GOLD.name: "the window of {topic} at {window_start}",
}


def _counts(rows: pa.RecordBatch, column: str, checks: Checks, failed: Sequence[tuple[Mask, Mask]]) -> pa.RecordBatch:
    """Of each rule, by minute."""
    if not rows.num_rows:
        return pa.RecordBatch.from_pylist([], COUNTED)
    micros = rows.column(column).cast(pa.int64()).to_numpy()
    minutes, place = np.unique(micros // MINUTE * MINUTE, return_inverse=True)
    found: dict[str, list[Any]] = {name: [] for name in COUNTED.names}
    for rule, (asked, mask) in _pairs(checks, failed):
        checked = np.bincount(place[asked], minlength=len(minutes))
        wrong = np.bincount(place[mask], minlength=len(minutes))
        there = np.flatnonzero(checked)
        found["minute"].extend(minutes[there].tolist())
        found["day"].extend((minutes[there] // (1440 * MINUTE)).tolist())
        found["rule"].extend([rule.name] * len(there))
        found["action"].extend([rule.action] * len(there))
        found["checked"].extend(checked[there].tolist())
        found["failed"].extend(wrong[there].tolist())
        example = _example(rows, rule, mask) if rule.action == FAIL and mask.any() else None
        found[EXAMPLE].extend([example if wrong[each] else None for each in there])
    types = {"minute": pa.int64(), "day": pa.int32()}
    made = [pa.array(found[each.name], types.get(each.name, each.type)).cast(each.type) for each in COUNTED]
    return pa.RecordBatch.from_arrays(made, schema=COUNTED)


def _example(rows: pa.RecordBatch, rule: Expectation, mask: Mask) -> str:
    row = rows.slice(int(np.flatnonzero(mask)[0]), 1).to_pylist()[0]
    return NAMES[rule.table].format(**row)


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= SEEN else f"{words[:SEEN]}…"
