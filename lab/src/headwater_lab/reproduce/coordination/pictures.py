"""The paper's figures, drawn from our data: 8 and 10 to 12, rates and latency over time; 13 to 15, bars.

Of a whole run they show what was measured at the limit, of a quick one what was measured at the fixed interval. The
paper prints its figures without numbers, so there is nothing of it in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater_lab.figure import Picture, plain, save
from headwater_lab.reproduce.coordination.plan import LOCAL, PLACEMENTS, SETUPS
from headwater_lab.reproduce.coordination.results import Key, Results, Spread, Summary, rates

INGRESS: Final = "#3b6fb6"
EGRESS: Final = "#2a7f62"
LATENCY: Final = "#c0392b"
COLOURS: Final = {LOCAL: "#2a7f62", "scattered": "#d98c1f"}
BARS: Final = (
    (13, "ingress", "ingress, messages/s", lambda each: each.ingress),
    (14, "egress", "egress, messages/s", lambda each: each.egress),
    (15, "latency", "latency, ms", lambda each: each.latency),
)


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Write the figures and return their files. FigureError: matplotlib is not installed."""
    return save(_pictures(results, folder))


def _pictures(results: Results, folder: Path) -> Iterator[Picture]:
    # Bars are compared, so all of them are of one kind.
    found = results.at_limit if len(results.at_limit) >= len(results.fixed) else results.fixed
    for setup in SETUPS.values():
        key = (setup.name, LOCAL)
        each = results.at_limit.get(key, results.fixed.get(key))
        if setup.figure is not None and each is not None:
            file = folder / f"coordination-{setup.figure}-{setup.name}.svg"
            yield Picture(file, (7.5, 3.0), partial(_over_time, each=each, title=setup.title))
    for number, name, label, of in BARS:
        draw = partial(_bars, found=found, label=label, of=of)
        yield Picture(folder / f"coordination-{number}-{name}.svg", (9, 3.8), draw)


def _over_time(figure: Any, each: Summary, title: str) -> None:
    axes = figure.add_subplot()
    samples = each.trial.samples
    for name, colour, label in (("attempted", INGRESS, "ingress"), ("received", EGRESS, "egress")):
        axes.plot(*zip(*rates(samples, name), strict=True), color=colour, label=label)
    axes.set_yscale("log")
    axes.set_ylim(max(each.ingress.mean, 1.0) / 3.0, max(each.egress.most, 1.0) * 3.0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter("")
    axes.set_ylabel("messages/s")
    axes.set_xlabel("seconds")
    axes.set_title(f"{title}, {each.trial.course.interval_ms:g} ms", loc="left", fontsize=9)
    plain(axes)
    beside = axes.twinx()
    pair = 1 if each.trial.is_far else 0
    probes = [probe for probe in each.trial.probes if probe.pair == pair and probe.received is not None]
    points = [(probe.sent - samples[0].at, ((probe.received or 0.0) - probe.sent) * 1e3) for probe in probes]
    if points:
        beside.plot(*zip(*points, strict=True), ".", color=LATENCY, markersize=4, label="latency")
    beside.set_ylim(bottom=0)
    beside.set_ylabel("latency, ms", color=LATENCY)
    beside.spines[["top"]].set_visible(False)
    figure.legend(loc="outside upper right", frameon=False, ncols=3, fontsize=8)


def _bars(figure: Any, found: Mapping[Key, Summary], label: str, of: Callable[[Summary], Spread]) -> None:
    """Mean, and standard deviation as a whisker."""
    axes = figure.add_subplot()
    names = list(dict.fromkeys(name for name, _ in found))
    for number, placement in enumerate(PLACEMENTS):
        bars = [(place, of(found[name, placement])) for place, name in enumerate(names) if (name, placement) in found]
        places = [place + 0.4 * number - 0.2 for place, _ in bars]
        heights, deviations = [value.mean for _, value in bars], [value.deviation for _, value in bars]
        whisker = {"ecolor": "#555555", "elinewidth": 1, "capsize": 2}
        axes.bar(places, heights, 0.38, yerr=deviations, color=COLOURS[placement], error_kw=whisker, label=placement)
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=8)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    plain(axes)
