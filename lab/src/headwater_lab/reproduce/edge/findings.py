"""All that an experiment found, in one object."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.records import records
from headwater_lab.reproduce.edge.results import Measured, Summary, late_missing, summarised
from headwater_lab.reproduce.edge.tables import all_tables
from headwater_lab.reproduce.page import Table
from headwater_lab.results import Record


@dataclass
class Findings:
    """`facts`: machine, versions, seed."""

    facts: dict[str, str]
    runs: list[Measured] = field(default_factory=list)
    lates: list[LateOutcome] = field(default_factory=list)

    def summaries(self) -> list[Summary]:
        return summarised(self.runs)

    def tables(self) -> list[Table]:
        return all_tables(self.summaries(), self.lates)

    def records(self) -> list[Record]:
        return records(self.summaries(), self.lates)

    @property
    def wrong(self) -> int:
        """Messages that are missing somewhere, and positions at which the logs differ."""
        return sum(run.missing + run.unequal for run in self.runs) + sum(map(late_missing, self.lates))
