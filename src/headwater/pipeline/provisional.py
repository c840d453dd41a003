"""Windows that are not final yet, from what silver has of them: for people who do not want to wait for gold.

Theory. Gold's windows are written once, `lateness` after their end, and never change; until then a window is open, and
what is said of it here may change with the next message. So these rows are in no table: they are computed when somebody
asks, for the windows behind those that gold contains, and each says `final = false`. The view `windows` is gold, with
`final = true`, and these. A window that is not over yet is silent at its end only up to the newest arrival.

What decides how windows are made is in the pipeline's settings, which a query does not have: gold's notes have them.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Log
from headwater.pipeline.lake.made import UNTIL, made_with
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.light import add_table, connection
from headwater.pipeline.tables import GOLD, SILVER, Table

WINDOWS: Final = "windows"
"""The view."""
FINAL: Final = "final"
"""Its column beside gold's."""
SECOND: Final = 1_000_000
LONG: Final = 1e10
"""Seconds, beyond all windows."""
SQL: Final = """
WITH readings AS (
  SELECT epoch_us(time) - ((epoch_us(time) % $window) + $window) % $window AS begin, topic, device, metric,
         epoch_us(time) AS made, epoch_us(arrival) AS arrived, store, position, part,
         CASE WHEN value = 0 THEN 0.0 ELSE value END AS value
  FROM silver
  WHERE clock = 'ok' AND isfinite(value) AND time >= make_timestamptz($start)
), on_time AS (
  SELECT * FROM readings WHERE arrived < begin + $window + $lateness
), steps AS (
  SELECT *, made - coalesce(lag(made) OVER window_, begin) AS silence, abs(value - lag(value) OVER window_) AS step
  FROM on_time
  WINDOW window_ AS (PARTITION BY begin, topic, device, metric ORDER BY made, store, position, part)
), figures AS (
  SELECT begin, topic, device, metric, count(*) AS count, min(value) AS min, max(value) AS max,
         greatest(least(avg(value), max(value)), min(value)) AS mean,
         quantile_cont(value, 0.5) AS p50, quantile_cont(value, 0.95) AS p95,
         first(value ORDER BY made, store, position, part) AS first,
         last(value ORDER BY made, store, position, part) AS last,
         count(*) FILTER (silence > $gap) AS inner_gaps, max(silence) AS inner_silence,
         greatest(0, least(begin + $window, (SELECT max(arrived) FROM readings)) - max(made)) AS after,
         max(step) AS step, quantile_disc(step, 0.5) AS typical
  FROM steps GROUP BY begin, topic, device, metric
), odd AS (
  SELECT *, CAST(inner_gaps + CAST(after > $gap AS INT) AS INT) AS gaps,
         greatest(inner_silence, after) / 1000000.0 AS longest_gap,
         count >= $flatline AND min = max AS is_flat,
         count >= $jump_readings AND typical > 0 AND coalesce(step > typical * $jump_factor, false) AS is_jump,
         coalesce(step > $jump_absolute, false) AS is_large_step
  FROM figures
)
SELECT make_timestamptz(begin) AS window_start, make_timestamptz(begin + $window) AS window_end, topic, device, metric,
       count, mean, min, max, p50, p95, first, last, gaps, longest_gap,
       concat_ws(',', CASE WHEN gaps > 0 THEN 'gap' END, CASE WHEN is_flat THEN 'flatline' END,
                 CASE WHEN is_jump OR is_large_step THEN 'jump' END) AS flags,
       concat_ws('; ',
         CASE WHEN gaps = 1 THEN format('silent for {:.1f} s', longest_gap)
              WHEN gaps > 1 THEN format('silent {} times, up to {:.1f} s', gaps, longest_gap) END,
         CASE WHEN is_flat THEN format('all {} readings are {:.4g}', count, min) END,
         CASE WHEN is_jump THEN format('a step of {:.4g} where {:.4g} is typical', step, typical)
              WHEN is_large_step THEN format('a step of {:.4g}', step) END) AS why,
       CAST(make_timestamptz(begin) AS DATE) AS day
FROM odd ORDER BY window_start, topic, device, metric
"""
"""GOLD's columns, by the rules of headwater.pipeline.derive.gold."""


def remembered(lake: Lake) -> Settings:
    """Those with which gold is made; the defaults, if nobody has noted it."""
    log = _log(lake, GOLD)
    made = None if log is None else made_with(log, log.look())
    known = {each.name for each in dataclasses.fields(Settings)} - {"clock_ahead", "clock_behind"}
    try:
        found = {name: value for name, value in (made or {}).items() if name in known}
        return Settings(**found, clock_behind=LONG)  # readings have been judged by their clocks already
    except (ValueError, TypeError):
        return Settings()


def provisional(lake: Lake, settings: Settings, table: Table = GOLD) -> pa.Table:
    """The open windows of a definition, with GOLD's columns."""
    schema = arrow_schema(GOLD)
    log = _log(lake, SILVER)
    if log is None:
        return schema.empty_table()
    start = final_until(lake, table)
    values: dict[str, Any] = {
        "window": settings.window * SECOND,
        "lateness": round(settings.lateness * SECOND),
        "gap": round(settings.gap * SECOND),
        "start": -(1 << 60) // 1000 if start is None else _micros(start),
        "flatline": settings.flatline,
        "jump_readings": settings.jump_readings,
        "jump_factor": settings.jump_factor,
        "jump_absolute": settings.jump_absolute,
    }
    with connection() as duck:
        add_table(duck, SILVER.name, log)
        found: pa.Table = duck.sql(SQL, params=values).to_arrow_table()
    return found.cast(schema)


def windows(lake: Lake, settings: Settings) -> pa.Table:
    """What the view shows: gold, and the open windows behind it."""
    schema = arrow_schema(GOLD)
    log = _log(lake, GOLD)
    final = schema.empty_table() if log is None else dataset(log).to_table(schema.names).cast(schema)
    both = [_marked(final, True), _marked(provisional(lake, settings), False)]
    return pa.concat_tables(both)


def _marked(rows: pa.Table, is_final: bool) -> pa.Table:
    return rows.append_column(FINAL, pa.array([is_final] * rows.num_rows, pa.bool_()))


def final_until(lake: Lake, table: Table = GOLD) -> datetime | None:
    """Windows that begin before this are in gold, or in the table of their definition."""
    log = _log(lake, table)
    note = None if log is None else log.look().note(UNTIL)
    return None if note is None else _EPOCH + timedelta(microseconds=note)


def first_expected(lake: Lake, settings: Settings) -> datetime | None:
    """When the next windows of gold can be final at the earliest; None: there is no reading for one yet."""
    rows = provisional(lake, settings)
    if rows.num_rows == 0:
        return None
    ends: list[datetime] = rows.column("window_end").to_pylist()
    return min(ends) + timedelta(seconds=settings.lateness)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _log(lake: Lake, table: Table) -> Log | None:
    log = lake.reading(table)
    return log if log.exists() else None
