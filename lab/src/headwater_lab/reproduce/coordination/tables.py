"""The tables of the experiment, the paper's figures beside ours."""

from __future__ import annotations

from headwater_lab.reproduce.coordination.plan import (
    FIXED,
    INTERVALS,
    LOCAL,
    PAPER_LARGE,
    PLACEMENTS,
    PUBLISHERS,
    SETUPS,
    TOPICS,
)
from headwater_lab.reproduce.coordination.results import KEPT, Key, Results, Spread, Step, Summary, limit
from headwater_lab.reproduce.page import Table


def all_tables(results: Results) -> list[Table]:
    tables = [fixed_table(results), latency_table(results), methods_table(results)]
    if results.steps:
        tables += [limits_table(results), steps_table(results), bars_table(results)]
    return [*tables, detector_table(results)]


def fixed_table(results: Results) -> Table:
    rows = []
    for key, each in results.fixed.items():
        times = results.speedup(key)
        rows.append(
            (
                _title(key),
                f"{each.cpu_per_delivered:.2f}",
                f"{each.busiest} {each.cpu[each.busiest]:.1f}",
                f"{each.projected:,.0f}",
                "" if times is None else f"{times:.2f}",
                f"{100.0 * each.loss:.2f}",
                ", ".join(each.signs.causes) or "no",
            )
        )
    figures = ("CPU, µs per delivered", "busiest, µs per ingress", "projected limit, 1/s", "× single", "loss, %")
    return Table(f"at an interval of {FIXED:g} ms", ("", *figures, "flagged"), rows)


def latency_table(results: Results) -> Table:
    rows = [
        (_title(key), *_cells(each.near), *(_cells(each.far) if each.trial.is_far else ("", "", "")))
        for key, each in results.fixed.items()
    ]
    figures = ("mean ± sd", "median", "least to most")
    head = ("probes, ms", *(f"{way}: {name}" for way in ("at one broker", "first to last") for name in figures))
    return Table(f"latency at an interval of {FIXED:g} ms", head, rows)


def methods_table(results: Results) -> Table:
    """Section 4.3: is flood better where subscribers are everywhere?"""
    rows = []
    for line in ("line5", "cluster5"):
        for placement in PLACEMENTS:
            flood, others = results.fixed.get((f"{line}-flood", placement)), ("subscribe", "bloom")
            cells = []
            for name in others:
                other = results.fixed.get((f"{line}-{name}", placement))
                if flood is not None and other is not None:
                    cells += [f"{flood.cpu_per_delivered / other.cpu_per_delivered:.2f}"]
                    cells += [f"{flood.projected / other.projected:.2f}"]
            if len(cells) == 2 * len(others):
                rows.append((f"{line}, {placement}", *cells))
    head = ("flood over the other method", "subscribe: CPU", "projected limit", "bloom: CPU", "projected limit")
    return Table("section 4.3: flood beside the methods that tell what is wanted", head, rows)


def limits_table(results: Results) -> Table:
    """Table 2."""
    rows = []
    for name in dict.fromkeys(key[0] for key in results.steps):
        paper = SETUPS[name].paper
        found = {key[1]: limit(steps) for key, steps in results.steps.items() if key[0] == name}
        cells = ["" if paper is None else f"{paper:g}", "" if paper is None else f"{_nominal(paper):,.0f}"]
        for value in found.values():
            cells += ["none", ""] if value is None else [f"{value:g}", "" if not value else f"{_nominal(value):,.0f}"]
        rows.append((SETUPS[name].title, *cells))
    large = ("one broker, the paper's large server", f"{PAPER_LARGE:g}", f"{_nominal(PAPER_LARGE):,.0f}")
    rows.append((*large, "", "", "", ""))
    head = ("table 2: the limit", "paper, ms", "1/s", "local, ms", "1/s", "scattered, ms", "1/s")
    return Table("the smallest interval with egress / (10 × ingress) ≥ 0.99, and ingress at it", head, rows)


def steps_table(results: Results) -> Table:
    rows = []
    for key, steps in results.steps.items():
        found = {step.interval_ms: _step(step) for step in steps}
        rows.append((_title(key), *(found.get(interval, "") for interval in INTERVALS)))
    title = "egress / (10 × ingress) by interval; in brackets the part of messages that could be sent, if below 0.95"
    return Table(title, ("ms", *(f"{interval:g}" for interval in INTERVALS)), rows)


def bars_table(results: Results) -> Table:
    rows = [
        (
            _title(key),
            f"{each.trial.course.interval_ms:g}",
            *(f"{value.mean:,.0f} ± {value.deviation:,.0f}" for value in (each.ingress, each.egress)),
            f"{each.latency.mean:.2f} ± {each.latency.deviation:.2f}",
            f"{100.0 * each.loss:.2f}",
            f"{sum(each.cpu.values()) * each.ingress.mean / 1e4:.0f}",
        )
        for key, each in results.at_limit.items()
    ]
    head = ("mean ± standard deviation", "ms", "ingress, 1/s", "egress, 1/s", "latency, ms", "loss, %", "CPU of all, %")
    return Table("at the limit (figures 13 to 15)", head, rows)


def detector_table(results: Results) -> Table:
    shown = [*results.fixed.values(), *results.at_limit.values()]
    rows = [(f"{_title(each.key)}, {each.trial.course.interval_ms:g} ms", *_signs(each)) for each in shown]
    if results.slow is not None:
        rows.append(("one broker, a generator that is slow on purpose", *_signs(results.slow)))
    head = ("generator", "processor, %", "least window", "sent again, %", "overdue, %", "flagged")
    return Table("was the generator the bottleneck?", head, rows)


def _signs(each: Summary) -> tuple[str, ...]:
    found = each.signs
    percent = (f"{100.0 * value:.2f}" for value in (found.sent_again, found.overdue))
    return f"{100.0 * found.processor:.0f}", f"{found.window:.2f}", *percent, ", ".join(found.causes) or "no"


def _step(step: Step) -> str:
    kept = f" ({step.kept:.2f})" if step.kept < KEPT else ""
    return f"{step.share:.3f}{kept}"


def _cells(value: Spread) -> tuple[str, str, str]:
    return f"{value.mean:.2f} ± {value.deviation:.2f}", f"{value.median:.2f}", f"{value.least:.2f} to {value.most:.2f}"


def _title(key: Key) -> str:
    name, placement = key
    return name if placement == LOCAL else f"{name}, {placement}"


def _nominal(interval_ms: float) -> float:
    return TOPICS * PUBLISHERS * 1000.0 / interval_ms
