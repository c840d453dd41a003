"""The same answers as `headwater.pipeline.derive`, slow and plain: loops over lists, exact fractions."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from itertools import pairwise
from math import isfinite
from typing import Any

from headwater.pipeline.derive.settings import Settings

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def begin_of(time: datetime, seconds: int) -> datetime:
    return EPOCH + (time - EPOCH) // timedelta(seconds=seconds) * timedelta(seconds=seconds)


def is_number(row: Row) -> bool:
    return row["value"] is not None and isfinite(row["value"])


def belongs(row: Row, settings: Settings) -> bool:
    end = begin_of(row["time"], settings.window) + timedelta(seconds=settings.window)
    return bool(row["clock"] == "ok" and row["arrival"] < end + timedelta(seconds=settings.lateness))


def gold(silver: list[Row], start: datetime, end: datetime, settings: Settings) -> list[Row]:
    windows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in silver:
        begin = begin_of(row["time"], settings.window)
        if is_number(row) and belongs(row, settings) and start <= begin < end:
            windows[(begin, row["topic"], row["device"], row["metric"])].append(row)
    return [window_of(key, rows, settings) for key, rows in windows.items()]


def window_of(key: tuple[Any, ...], rows: list[Row], settings: Settings) -> Row:
    begin, end = key[0], key[0] + timedelta(seconds=settings.window)
    rows = sorted(rows, key=lambda row: (row["time"], row["store"], row["position"], row["part"]))
    values = [row["value"] + 0.0 for row in rows]
    moments = [begin, *(row["time"] for row in rows), end]
    silences = [(after - before).total_seconds() for before, after in pairwise(moments)]
    steps = sorted(abs(after - before) for before, after in pairwise(values))
    gaps = sum(silence > settings.gap for silence in silences)
    reasons = {}
    if gaps:
        times = "for" if gaps == 1 else f"{gaps} times, up to"
        reasons["gap"] = f"silent {times} {digits(max(silences), '0.1')} s"
    if len(values) >= settings.flatline and min(values) == max(values):
        reasons["flatline"] = f"all {len(values)} readings are {general(values[0])}"
    if jump := why_jump(steps, len(values), settings):
        reasons["jump"] = jump
    return {
        "window_start": begin,
        "window_end": end,
        "topic": key[1],
        "device": key[2],
        "metric": key[3],
        "count": len(values),
        "mean": sum(map(Fraction, values)) / len(values),
        "min": min(values),
        "max": max(values),
        "p50": percentile(values, 50),
        "p95": percentile(values, 95),
        "first": values[0],
        "last": values[-1],
        "gaps": gaps,
        "longest_gap": max(silences),
        "flags": ",".join(reasons),
        "why": "; ".join(reasons.values()),
        "day": begin.date(),
    }


def why_jump(steps: list[float], count: int, settings: Settings) -> str:
    """`steps` are sorted."""
    if not steps:
        return ""
    typical = steps[(len(steps) - 1) // 2]
    usable = count >= settings.jump_readings and typical > 0
    if settings.jump_factor and usable and steps[-1] > settings.jump_factor * typical:
        return f"a step of {general(steps[-1])} where {general(typical)} is typical"
    if settings.jump_absolute and steps[-1] > settings.jump_absolute:
        return f"a step of {general(steps[-1])}"
    return ""


def percentile(values: list[float], percent: int) -> Fraction:
    exact = sorted(map(Fraction, values))
    below, rest = divmod((len(exact) - 1) * percent, 100)
    return exact[below] if rest == 0 else exact[below] + (exact[below + 1] - exact[below]) * Fraction(rest, 100)


def general(value: float) -> str:
    """Four digits that count, as Java writes %.4g: halves go up, in decimal."""
    if value == float("inf"):
        return "Infinity"
    rounded = Context(prec=4, rounding=ROUND_HALF_UP).create_decimal(repr(value))
    return f"{float(rounded):#.4g}".removesuffix(".")


def digits(value: float, step: str) -> str:
    return str(Decimal(repr(value)).quantize(Decimal(step), ROUND_HALF_UP))


def late(silver: list[Row], start: datetime, end: datetime, settings: Settings) -> list[Row]:
    counted: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in silver:
        minute = begin_of(row["arrival"], 60)
        if is_number(row) and not belongs(row, settings) and start <= minute < end:
            key = (begin_of(row["time"], settings.window), row["topic"], minute)
            counted[key]["ahead" if row["clock"] == "ahead" else "behind"] += 1
    return [
        {
            "window_start": begin,
            "topic": topic,
            "behind": counts["behind"],
            "ahead": counts["ahead"],
            "minute": minute,
            "day": minute.date(),
        }
        for (begin, topic, minute), counts in counted.items()
    ]


def latest(silver: list[Row]) -> list[Row]:
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    names = ("topic", "device", "metric", "time", "arrival", "clock", "value", "text", "store", "position", "part")
    rows = {}
    for row in silver:
        key = (row["topic"], row["device"], row["metric"])
        moment = row["arrival"] if row["clock"] == "ahead" else row["time"]
        name = (moment, row["store"], row["position"], row["part"])
        if key not in last or name > last[key]:
            last[key] = name
            rows[key] = {each: row.get(each) for each in names}
    return list(rows.values())


def completeness(
    bronze: list[Row],
    live: list[Row],
    stores: dict[str, int],
    start: datetime,
    end: datetime,
    erased: list[tuple[str, int, int]] | None = None,
) -> list[Row]:
    answers: dict[tuple[str, datetime | None], Row] = {}
    for store, behind in stores.items():
        minute = begin_of(start, 60)
        while minute < end:
            zeros = dict.fromkeys(("made", "live", "recovered", "duplicate", "lost", "erased"), 0)
            answers[(store, minute)] = {"store": store, "minute": minute, **zeros, "day": minute.date()}
            minute += timedelta(minutes=1)
        here = {row["position"]: row["arrival"] for row in bronze if row["store"] == store and row["arrival"] < end}
        times = Counter(row["position"] for row in live if row["store"] == store)
        minute_of_next = None
        for position in range(max(here, default=0), behind, -1):  # backwards: a hole belongs to the next message
            if position in here:
                minute_of_next = begin_of(here[position], 60)
            answer = answers.get((store, minute_of_next))
            if answer is None:
                continue
            answer["made"] += 1
            answer["duplicate"] += max(times[position] - 1, 0)
            gone = any(of == store and first <= position <= last for of, first, last in erased or ())
            way = "live" if times[position] else "recovered" if position in here else "erased" if gone else "lost"
            answer[way] += 1
    return list(answers.values())


def holes(bronze: list[Row], expected: dict[str, tuple[int, int]]) -> list[Row]:
    found: list[Row] = []
    for store, (first, last) in expected.items():
        here = {row["position"] for row in bronze if row["store"] == store}
        for position in range(first, last + 1):
            if position in here:
                continue
            if found and found[-1]["store"] == store and found[-1]["last"] == position - 1:
                found[-1]["last"] = position
            else:
                found.append({"store": store, "first": position, "last": position})
    return found


def traffic(bronze: list[Row], start: datetime, end: datetime) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in bronze:
        minute = begin_of(row["arrival"], 60)
        if start <= minute < end:
            groups[(minute, row["topic"], row["store"])].append(row)
    return [
        {
            "minute": minute,
            "topic": topic,
            "store": store,
            "messages": len(rows),
            "day": minute.date(),
            "bytes": sum(len(row["payload"]) for row in rows),
            "publishers": len({row["publisher"] for row in rows}),
        }
        for (minute, topic, store), rows in groups.items()
    ]
