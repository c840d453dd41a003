"""Results as text: a progress line per case, and the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headwater_lab import results
from headwater_lab.compare import MOSQUITTO, OURS, Row
from headwater_lab.scenarios import P99_BOUND


def markers(benchmark: str) -> tuple[str, str]:
    """What begins and ends the part of docs/performance.md that a benchmark writes."""
    begin = f"<!-- bench {benchmark}: begin; this part is written by scripts/bench {benchmark} -->"
    return begin, f"<!-- bench {benchmark}: end -->"


BEGIN, END = markers("broker")
TITLE: Final = "# Performance"


def progress_line(row: Row) -> str:
    """One line for the terminal."""
    if row.error:
        return f"{row.key:28} FAILED: {row.error}"
    ours, theirs = (number(row.median(broker, "cost")) for broker in (OURS, MOSQUITTO))
    line = f"{row.key:28} ratio {row.ratio:7.2f} ±{row.spread:6.2f}  {ours:>8} vs {theirs:>8} {row.unit}"
    if row.median(OURS, "rate"):
        line += f"  rate {row.median(OURS, 'rate'):,.0f} vs {row.median(MOSQUITTO, 'rate'):,.0f}/s"
    if row.median(MOSQUITTO, "p99"):
        line += f"  p99 {row.median(OURS, 'p99'):.0f} vs {row.median(MOSQUITTO, 'p99'):.0f} µs"
    return line + "".join(f"  {remark.upper()}" for remark in remarks(row))


def remarks(row: Row) -> list[str]:
    """What a reader of the figures has to know: losses first, then promises not kept."""
    if row.error:
        return [row.error]
    said = [f"{name} {count}" for name, count in row.violations().items()]
    said += [f"mosquitto: {name} {count}" for name, count in row.violations(MOSQUITTO).items()]
    floor, bound = row.case["floor"], row.case["bound"]
    if floor is not None and row.ratio < floor:
        said.append(f"below the floor of {floor:g}")
    if bound is not None and row.median(OURS, "cost") > bound:
        said.append(f"above the bound of {bound:g} {row.unit}")
    if _promises_p99(row) and row.median(OURS, "p99") > P99_BOUND * row.median(MOSQUITTO, "p99"):
        said.append(f"p99 above {P99_BOUND:g} × Mosquitto's")
    for broker in (OURS, MOSQUITTO):
        refused = row.median(broker, "refused")
        if refused:
            said.append(f"{broker} refused {refused:,.0f} subscriptions")
    return said


def markdown(rows: Sequence[Row], machine: dict[str, str], figure: str | None) -> str:
    """The generated part of docs/performance.md, without its markers."""
    traffic = [row for row in rows if row.case["measure"] == "traffic"]
    paced = [row for row in traffic if not row.error and row.median(MOSQUITTO, "p99")]
    other = [row for row in rows if row.case["measure"] != "traffic"]
    parts = [facts(machine)]
    parts.append(
        "Ratio: Mosquitto's cost over ours, medians of interleaved rounds, above 1 is ahead; ± half the spread of the "
        "rounds' own ratios. Floor: the least ratio promised. Every subscriber checks that each publisher's "
        "messages come complete and in order."
    )
    if figure:
        parts.append(f"![Mosquitto's cost over ours]({figure})")
    if traffic:
        parts += ["### CPU time per delivered message", _traffic_table(traffic)]
    if paced:
        parts += ["### Latency at a fixed rate", _latency_table(paced)]
    if other:
        parts += ["### Connections, memory, start", _resource_table(other)]
    parts += ["### Losses", _losses(rows)]
    return "\n\n".join(parts) + "\n"


def insert(document: str, generated: str, benchmark: str = "broker") -> str:
    """`document` with the part between the benchmark's markers replaced, or added at the end if it has none."""
    return results.insert(document, generated, markers(benchmark), TITLE)


def update(page: Path, generated: str, benchmark: str = "broker") -> None:
    """The same with a file, which need not be there."""
    results.update(page, generated, markers(benchmark), TITLE)


def _traffic_table(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        what, version = row.case["what"], "5.0" if row.case["mqtt"] == 5 else "3.1.1"
        if row.error:
            lines.append([what, version, "failed", "", "", "", "", ""])
            continue
        costs = [number(row.median(broker, "cost")) for broker in (OURS, MOSQUITTO)]
        rates = [f"{row.median(broker, 'rate'):,.0f}" for broker in (OURS, MOSQUITTO)]
        lines.append([what, version, ratio(row), _floor(row), *costs, *rates])
    head = ["traffic", "MQTT", "ratio", "floor", "µs ours", "µs Mosquitto", "messages/s ours", "Mosquitto"]
    return table(head, lines)


def _latency_table(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        version = "5.0" if row.case["mqtt"] == 5 else "3.1.1"
        figures = [f"{row.median(broker, name):.0f}" for name in ("p50", "p99") for broker in (OURS, MOSQUITTO)]
        bound = f"≤ {P99_BOUND:g} ×" if _promises_p99(row) else ""
        lines.append([row.case["what"], version, *figures, bound])
    head = ["traffic", "MQTT", "p50 µs ours", "p50 µs Mosquitto", "p99 µs ours", "p99 µs Mosquitto", "p99 bound"]
    return table(head, lines)


def _resource_table(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        if row.error:
            lines.append([row.case["what"], row.unit, "failed", "", "", "", ""])
            continue
        costs = [number(row.median(broker, "cost")) for broker in (OURS, MOSQUITTO)]
        bound = "" if row.case["bound"] is None else f"≤ {row.case['bound']:g}"
        rates = [f"{row.median(broker, 'rate'):,.0f}" for broker in (OURS, MOSQUITTO) if row.median(broker, "rate")]
        lines.append([row.case["what"], row.unit, ratio(row), *costs, bound, " vs ".join(rates)])
    return table(["what", "unit", "ratio", "ours", "Mosquitto", "bound", "per second"], lines)


def _losses(rows: Iterable[Row]) -> str:
    """Where the other broker is better, or ours broke a promise: said as plainly as the rest."""
    lines = []
    for row in rows:
        said = remarks(row)
        if not row.error and row.ratio < 1:
            said.insert(0, f"Mosquitto is ahead, ratio {ratio(row)}")
        if said:
            lines.append(f"- {row.case['what']} ({row.key}): {'; '.join(said)}.")
    return "\n".join(lines) or "None: no message lost or out of order, every ratio at least 1, every promise kept."


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *lines])


def ratio(row: Row) -> str:
    """A ratio and its spread as they stand in the tables."""
    return f"{row.ratio:.2f} ± {row.spread:.2f}" if row.ratio < 10 else f"{row.ratio:.1f} ± {row.spread:.1f}"


def _floor(row: Row) -> str:
    return "" if row.case["floor"] is None else f"{row.case['floor']:g}"


def _promises_p99(row: Row) -> bool:
    return row.case["scenario"] == "paced" and row.case["name"] in ("W1", "W2", "W4")


def facts(machine: dict[str, str]) -> str:
    """Machine and versions as a list."""
    return "\n".join(f"- {name}: {f'`{value}`' if name == 'command' else value}" for name, value in machine.items())


def number(value: float) -> str:
    """A cost with about three digits that count."""
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"
