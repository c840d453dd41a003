"""All that an experiment found, in one object."""

from __future__ import annotations

from dataclasses import dataclass

from headwater_lab.reproduce.balance import tables
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.results import Bar, Summary, bars, noise, records, summaries
from headwater_lab.reproduce.page import Table
from headwater_lab.results import Record


@dataclass
class Findings:
    """All that was found. `facts`: machine, versions, seed."""

    facts: dict[str, str]
    results: list[Result]
    bounds: dict[str, float]

    def __post_init__(self) -> None:
        self.summaries: list[Summary] = summaries(self.results)
        self.bars: list[Bar] = bars(self.summaries, self.bounds)
        settings = dict.fromkeys(each.trial.setting for each in self.results)
        self.noises = {
            setting.name: noise(each for each in self.results if each.trial.setting == setting) for setting in settings
        }

    def tables(self) -> list[Table]:
        return tables.all_tables(self.summaries, self.bounds, self.results, self.bars, self.noises)

    def records(self) -> list[Record]:
        return records(self.summaries, self.bounds)

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.summaries)
