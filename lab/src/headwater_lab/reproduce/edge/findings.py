"""All that an experiment found, in one object."""

from __future__ import annotations

from dataclasses import dataclass

from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.results import Measured, Summary, late_missing, records, summarised
from headwater_lab.reproduce.edge.tables import all_tables
from headwater_lab.reproduce.page import Table
from headwater_lab.results import Record


@dataclass
class Findings:
    """`facts`: machine, versions, seed."""

    facts: dict[str, str]
    runs: list[Measured]
    late: LateOutcome | None

    def __post_init__(self) -> None:
        self.summaries: list[Summary] = summarised(self.runs)

    def tables(self) -> list[Table]:
        return all_tables(self.summaries, self.late)

    def records(self) -> list[Record]:
        return records(self.summaries, self.late)

    @property
    def wrong(self) -> int:
        """Messages that are missing somewhere, and positions at which the logs differ."""
        found = sum(each.missing + each.unequal for each in self.summaries)
        return found + (0 if self.late is None else late_missing(self.late))
