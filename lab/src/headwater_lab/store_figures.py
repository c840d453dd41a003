"""The figures of a run: for programs as a list, for the documentation as tables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final, NamedTuple

from headwater_lab import results
from headwater_lab.report import facts, table, update

SYSTEMS: Final = {
    "": "node, by MQTT and HTTP",
    "inside/": "the store in process",
    "sqlite/": "SQLite in process",
    "file/": "plain file in process",
}
GOALS: Final = {
    "intake_qos0/msgs_per_s": ("≥", 100_000.0),
    "intake_qos1/msgs_per_s": ("≥", 40_000.0),
    "read_arrow/rows_per_s": ("≥", 400_000.0),
    "query/p99_ms": ("≤", 20.0),
    "disk/bytes_per_payload_byte": ("≤", 1.2),
}
ROWS: Final = {
    "intake_qos0/msgs_per_s": "QoS 0, messages/s until all can be read",
    "intake_qos0/cpu_us": "its CPU, µs per message",
    "intake_qos0/messages_per_commit": "messages per commit",
    "intake_qos1/msgs_per_s": "QoS 1, acknowledged messages/s",
    "intake_qos1/cpu_us": "its CPU, µs per message",
    "intake_qos1/messages_per_commit": "messages per commit",
    "intake_qos1_window1/msgs_per_s": "the same with one message under way per publisher",
    "read_arrow/rows_per_s": "all of it in order as Arrow, rows/s",
    "read_arrow/cpu_us": "its CPU, µs per row",
    "query/p50_ms": "one topic and an hour, p50 in ms",
    "query/p99_ms": "p99 in ms",
    "disk/bytes_per_message": "bytes on disk per message",
    "disk/bytes_per_payload_byte": "over the payload's bytes",
}


class Figure(NamedTuple):
    name: str
    value: float
    unit: str


class Figures:
    """In the order in which they were found. `rows` and `systems` are what a table shows, `goals` what is asked for."""

    def __init__(
        self,
        rows: Mapping[str, str] = ROWS,
        goals: Mapping[str, tuple[str, float]] = GOALS,
        systems: Mapping[str, str] = SYSTEMS,
    ) -> None:
        self.found: dict[str, Figure] = {}
        self.rows = rows
        self.goals = goals
        self.systems = systems

    def add(self, name: str, value: float, unit: str) -> None:
        self.found[name] = Figure(name, value, unit)

    def value(self, name: str) -> float:
        return self.found[name].value

    def records(self, machine: Mapping[str, str]) -> list[results.Record]:
        """Name, paper, ours and unit of each, as `headwater reproduce` has them; the machine is text."""
        numbers = [results.record(figure.name, None, figure.value, figure.unit) for figure in self.found.values()]
        return numbers + [
            {"name": f"machine/{name}", "paper": None, "ours": value, "unit": "text"} for name, value in machine.items()
        ]

    def missed(self) -> list[str]:
        """Goals that were not reached, in words."""
        said = []
        for name, (sign, goal) in self.goals.items():
            if name in self.found:
                value = self.value(name)
                if value < goal if sign == "≥" else value > goal:
                    said.append(f"{name} is {shown(value)}, the goal is {sign} {shown(goal)}")
        return said

    def publish(self, chosen: argparse.Namespace, name: str, page: str, machine: Mapping[str, str]) -> None:
        """As `options.figure_options` have it: print them, and write them to a file, and into a page and the results of
        the documentation."""
        records = self.records(machine)
        if chosen.json is not None:
            results.write_json(chosen.json, records)
        report = self.markdown(machine)
        print(f"\n{report}")
        if not (chosen.quick or chosen.no_docs):
            update(chosen.docs / page, report, name)
            results.keep(chosen.docs, name, records)

    def markdown(self, machine: Mapping[str, str]) -> str:
        """The generated part of docs/performance.md, without its markers."""
        lines = []
        for name, what in self.rows.items():
            cells = [self.found.get(prefix + name) for prefix in self.systems]
            if any(cells):
                sign, goal = self.goals.get(name, ("", 0.0))
                stated = f"{sign} {shown(goal)}" if sign else ""
                lines.append([what, stated, *("" if cell is None else shown(cell.value) for cell in cells)])
        parts = [facts(dict(machine)), table(["", "goal", *self.systems.values()], lines)]
        missed = self.missed()
        parts.append("Goals that were missed: " + ("; ".join(missed) if missed else "none") + ".")
        return "\n\n".join(parts) + "\n"


def shown(value: float) -> str:
    """With about three digits that count."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
