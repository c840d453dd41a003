"""A batch of bronze becomes readings and what is quarantined. Every message is in exactly one of them.

Theory. Topics repeat: which rule a topic has, and the names of device and metric, are found once for each topic and
spread by its number in the dictionary. Then the messages of each rule are decoded together, and the columns put
together in the order of the messages. Inferred columns come last, when all rules have said what they found, so that
it does not matter how messages were grouped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.decoding import paths
from headwater.pipeline.decoding.fields import established, fit
from headwater.pipeline.decoding.json_text import NotJson, parse
from headwater.pipeline.decoding.naming import Naming, last_level
from headwater.pipeline.decoding.outcome import OWN, Messages, Outcome
from headwater.pipeline.decoding.reading import sentence
from headwater.pipeline.decoding.rules import Rules
from headwater.pipeline.decoding.schemas import ARROW, QUARANTINED, arrow_schema
from headwater.pipeline.tables import BRONZE, QUARANTINE, SILVER

NEEDED: Final = tuple(each for each in BRONZE.columns if each.name in (*QUARANTINE.names, "value"))
COLUMNS: Final = tuple(each.name for each in NEEDED)
"""Of bronze, those that decoding reads."""
MICROSECONDS: Final = 1_000_000
SEEN_BY_STORES: Final = 1 << 20
"""Bytes of a payload up to which a store looks for time and value (`store.extract`)."""
TIMES: Final = (("ts",), ("date",))
VALUE: Final = ("value",)
"""Where it looks, unless its node was told otherwise; then a rule's `time` and `value` say it here, too."""


class Decoded(NamedTuple):
    """`readings` has silver's columns and further ones, `quarantined` those of quarantine; both in the order of
    messages."""

    readings: pa.RecordBatch
    quarantined: pa.RecordBatch


def decode(batch: pa.RecordBatch, rules: Rules) -> Decoded:
    """The batch has the columns of bronze; `qos`, `retain` and `properties` may be left out. No payload makes it
    raise."""
    columns, topics = _columns(batch, rules.limits.longest)
    names = _Names(columns, topics, rules)
    groups = [_Group(columns, names, *each, rules) for each in _grouped(topics, names.numbers)]
    further = _further(groups, rules)
    schema = arrow_schema(SILVER, further)
    readings = _in_order([group.readings(schema, further, rules) for group in groups], schema, groups)
    quarantined = [group.quarantined() for group in groups if group.outcome.refused]
    return Decoded(readings, _in_order_of(quarantined, QUARANTINED))


def _columns(batch: pa.RecordBatch, longest: int) -> tuple[dict[str, pa.Array], pa.DictionaryArray]:
    """As they are needed, without dictionaries, and the topics with one."""
    columns = {}
    for each in NEEDED:
        if each.name not in batch.schema.names:
            raise ValueError(f"the batch has no column {each.name!r}; it has {', '.join(batch.schema.names)}")
        columns[each.name] = batch.column(each.name)
    topics = columns["topic"]
    if not pa.types.is_dictionary(topics.type):
        topics = topics.cast(pa.string()).dictionary_encode()
    for each in NEEDED:
        columns[each.name] = columns[each.name].cast(ARROW[each.type])
    _look_into_long_ones(columns, longest)
    value = columns["value"]
    columns["value"] = pc.if_else(pc.is_finite(value), value, pa.scalar(None, pa.float64()))
    return columns, topics


def _look_into_long_ones(columns: dict[str, pa.Array], longest: int) -> None:
    """Time and value of documents that were too long for the store to look into, as it finds them in others."""
    payloads = columns["payload"]
    length = pc.binary_length(payloads)
    is_long = pc.and_(pc.greater(length, SEEN_BY_STORES), pc.less_equal(length, longest))
    long = pc.indices_nonzero(is_long).to_pylist()
    if not long:
        return
    times, values = columns["time"].cast(pa.int64()).to_pylist(), columns["value"].to_pylist()
    for row in long:
        try:
            document = parse(payloads[row].as_py())
        except NotJson:
            continue
        said = [each for each in (paths.at(document, path) for path in TIMES) if each is not None]
        time = paths.moment(said[0]) if said else None
        times[row] = times[row] if time is None else time
        value = paths.number(paths.at(document, VALUE) if isinstance(document, dict) else document)
        values[row] = values[row] if value is None else value
    columns["time"] = pa.array(times, pa.int64()).cast(ARROW["timestamp"])
    columns["value"] = pa.array(values, pa.float64())


class _Names:
    """Rule, device and metric of each message, as far as topic and publisher say them."""

    def __init__(self, columns: Mapping[str, pa.Array], topics: pa.DictionaryArray, rules: Rules) -> None:
        known: list[str] = topics.dictionary.to_pylist()
        self.numbers: Final = [rules.number_of(topic) for topic in known]
        chosen = [rules.rules[number] for number in self.numbers]
        by_topic = [
            _in_topic(rule.metric, topic) or last_level(topic) for rule, topic in zip(chosen, known, strict=True)
        ]
        self.metric = pa.array(by_topic, pa.string()).take(topics.indices)
        devices = [_in_topic(rule.device, topic) for rule, topic in zip(chosen, known, strict=True)]
        self.device = pc.coalesce(pa.array(devices, pa.string()).take(topics.indices), columns["publisher"])
        self._by_publisher(columns, topics, rules)

    def _by_publisher(self, columns: Mapping[str, pa.Array], topics: pa.DictionaryArray, rules: Rules) -> None:
        """The names that need the publisher as well, message by message."""
        for name in ("device", "metric"):
            namings: list[Naming | None] = [getattr(rules.rules[number], name) for number in self.numbers]
            if any(naming is not None and naming.by_publisher for naming in namings):
                found = getattr(self, name).to_pylist()
                pairs = zip(topics.indices.to_pylist(), columns["publisher"].to_pylist(), strict=True)
                for row, (index, publisher) in enumerate(pairs):
                    naming = namings[index]
                    if naming is not None and naming.by_publisher:
                        found[row] = naming.in_topic(topics.dictionary[index].as_py(), publisher) or found[row]
                setattr(self, name, pa.array(found, pa.string()))


def _in_topic(naming: Naming | None, topic: str) -> str | None:
    return None if naming is None or naming.path else naming.in_topic(topic) or None


def _grouped(topics: pa.DictionaryArray, numbers: list[int]) -> Iterator[tuple[int, pa.Array | None]]:
    """Each rule that has messages, and which; None: all."""
    by_row = pa.array(numbers, pa.int32()).take(topics.indices)
    present = pc.unique(by_row).to_pylist()
    for number in sorted(present):
        yield number, pc.indices_nonzero(pc.equal(by_row, number)).cast(pa.int64()) if len(present) > 1 else None


class _Group:
    """The messages of one rule, decoded."""

    def __init__(
        self, columns: Mapping[str, pa.Array], names: _Names, number: int, rows: pa.Array | None, rules: Rules
    ) -> None:
        self._columns = dict(columns) if rows is None else {name: each.take(rows) for name, each in columns.items()}
        self._names = {
            name: each if rows is None else each.take(rows)
            for name, each in (("device", names.device), ("metric", names.metric))
        }
        self._rows = rows
        self._decoder = rules.rules[number].decoder
        self.outcome: Final[Outcome] = rules.decoder(number).decode(Messages(self._columns))

    def rows(self, taken: pa.Array | None) -> pa.Array:
        """Numbers in the batch of some messages of the group."""
        if self._rows is None:
            return pa.array(range(len(self._columns["payload"])), pa.int64()) if taken is None else taken
        return self._rows if taken is None else self._rows.take(taken)

    def readings(self, schema: pa.Schema, further: Mapping[str, str], rules: Rules) -> pa.RecordBatch:
        outcome = self.outcome
        of_messages = {**self._columns, **self._names}
        if outcome.rows is not None:
            of_messages = {name: each.take(outcome.rows) for name, each in of_messages.items() if name != "payload"}
        length = len(of_messages["store"])
        columns = {
            **of_messages,
            **{name: pa.nulls(length, ARROW[OWN[name]]) for name in ("value", "text", "data", "raw")},
        }
        for name, found in outcome.columns.items():
            columns[name] = pc.coalesce(found, columns[name]) if name in ("time", "device", "metric") else found
        columns["part"] = pa.nulls(length, pa.int32()).fill_null(0) if outcome.parts is None else outcome.parts
        columns["clock"] = _clock(columns["time"], columns["arrival"], rules)
        columns["decoder"] = _constant(self._decoder, length)
        for name, type in further.items():
            columns[name] = self._further(name, type, length)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _further(self, name: str, type: str, length: int) -> pa.Array:
        fields = self.outcome.fields
        if fields is None:
            return pa.nulls(length, ARROW[type])
        found: list[Any] = [each.get(name) for each in fields]
        if not self.outcome.fitting:
            found = [None if each is None else fit(type, each) for each in found]
        return pa.array(found, ARROW[type])

    def quarantined(self) -> tuple[pa.Array, pa.RecordBatch]:
        refused = self.outcome.refused
        rows = pa.array(refused.keys(), pa.int64())
        columns = {name: each.take(rows) for name, each in self._columns.items()}
        columns["decoder"] = _constant(self._decoder, len(rows))
        columns["reason"] = pa.array([sentence(each) for each in refused.values()], pa.string())
        made = pa.RecordBatch.from_arrays([columns[name] for name in QUARANTINED.names], schema=QUARANTINED)
        return self.rows(rows), made


def _constant(text: str, length: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.nulls(length, pa.int32()).fill_null(0), pa.array([text])).cast(pa.string())


def _clock(time: pa.Array, arrival: pa.Array, rules: Rules) -> pa.Array:
    apart = pc.subtract(time.cast(pa.int64()), arrival.cast(pa.int64()))
    ahead = pc.greater(apart, int(rules.limits.ahead * MICROSECONDS))
    behind = pc.less(apart, -int(rules.limits.behind * MICROSECONDS))
    return pc.if_else(ahead, "ahead", pc.if_else(behind, "behind", "ok"))


def _further(groups: list[_Group], rules: Rules) -> dict[str, str]:
    """Columns beyond silver's own, with what appears in this batch in the order of messages."""
    if not rules.infers:
        return dict(rules.columns)
    appearing: list[tuple[int, Mapping[str, Any]]] = []
    for group in groups:
        if group.outcome.fields is not None and not group.outcome.fitting:
            rows = group.rows(group.outcome.rows).to_pylist()
            appearing.extend(zip(rows, group.outcome.fields, strict=True))
    appearing.sort(key=lambda each: each[0])
    return established(rules.columns, rules.limits.most_columns, (fields for _, fields in appearing))


def _in_order(made: list[pa.RecordBatch], schema: pa.Schema, groups: list[_Group]) -> pa.RecordBatch:
    if len(made) == 1:  # then nobody needs to know where each row was
        return made[0]
    return _in_order_of(
        [(group.rows(group.outcome.rows), each) for group, each in zip(groups, made, strict=True)], schema
    )


def _in_order_of(made: list[tuple[pa.Array, pa.RecordBatch]], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of several, in the order of messages."""
    if len(made) == 1:
        return made[0][1]
    if not made:
        return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
    order = pc.sort_indices(pa.concat_arrays([rows for rows, _ in made]))  # which is stable: parts stay in order
    return pa.concat_batches([batch for _, batch in made]).take(order)
