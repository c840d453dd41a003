"""What came of the grid: means over the seeds, as tables and as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from headwater_lab.reproduce.balance.grid import GridPoint, Measured, Setting
from headwater_lab.reproduce.page import Table


@dataclass(frozen=True)
class Summary:
    """A dispatcher in a setting: means over the seeds, and the least and the greatest of the seeds' mean latencies."""

    setting: Setting
    dispatcher: str
    seeds: int
    mean_ms: float
    least_ms: float
    greatest_ms: float
    p50_ms: float
    p99_ms: float
    fairness: float

    @property
    def name(self) -> str:
        setting = self.setting
        return f"{setting.members}/{setting.load:.0%}/{setting.varying:g}/{setting.way}/{self.dispatcher}"


def summarise(grid: Sequence[GridPoint], measured: Sequence[Measured]) -> list[Summary]:
    of: dict[tuple[Setting, str], list[Measured]] = {}
    for point, each in zip(grid, measured, strict=True):
        of.setdefault((point.setting, point.dispatcher), []).append(each)
    return [_summary(*what, some) for what, some in of.items()]


def _summary(setting: Setting, dispatcher: str, some: Sequence[Measured]) -> Summary:
    means = [each.mean_ms for each in some]
    return Summary(
        *(setting, dispatcher, len(some), fmean(means), min(means), max(means)),
        p50_ms=fmean(each.p50_ms for each in some),
        p99_ms=fmean(each.p99_ms for each in some),
        fairness=fmean(each.fairness for each in some),
    )


def tables(summaries: Sequence[Summary]) -> list[Table]:
    """For each way and variation: a line per group and load, a column per dispatcher."""
    found = []
    for way, varying in dict.fromkeys((each.setting.way, each.setting.varying) for each in summaries):
        some = [each for each in summaries if (each.setting.way, each.setting.varying) == (way, varying)]
        names = tuple(dict.fromkeys(each.dispatcher for each in some))
        lines = {setting: f"{setting.members} at {setting.load:.0%}" for setting in (each.setting for each in some)}
        value = {(each.setting, each.dispatcher): _ms(each.mean_ms) for each in some}
        rows = [(line, *(value[setting, name] for name in names)) for setting, line in lines.items()]
        times = f"times vary (sigma {varying:g})" if varying else "times do not vary"
        title = f"mean latency in ms, members tell by {way}, {times}"
        found.append(Table(title, ("members, ms", *names), rows))
    return found


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 100.0 else f"{value:,.0f}"


def records(summaries: Sequence[Summary]) -> list[dict[str, object]]:
    """Name, paper, ours and unit of each figure; the thesis has none for a grid."""
    return [{"name": each.name, "paper": None, "ours": each.mean_ms, "unit": "ms"} for each in summaries]
