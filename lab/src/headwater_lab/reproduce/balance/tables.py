"""The tables of the experiment, the thesis's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.plan import (
    CLAIRVOYANT,
    CLAIRVOYANT_QOS1,
    PAPER_STEADY,
    PLAIN,
    SETTINGS,
    MemberRow,
    Setting,
)
from headwater_lab.reproduce.balance.results import BOUND, Bar, Noise, Summary, steady_rows
from headwater_lab.reproduce.page import Table

STEADY_SHOWN: Final = ("round_robin", "score", "score_mended", "adaptive", CLAIRVOYANT)
_PLAIN_NAMES: Final = {contender.name for contender in PLAIN}


def means_table(setting: Setting, found: Sequence[Summary], bounds: dict[str, float]) -> Table:
    """A setting's contenders, the mean of all messages first."""
    here = {each.name: each for each in found if each.setting == setting}
    rows = []
    for each in here.values():
        against = here.get(CLAIRVOYANT_QOS1 if each.name in _PLAIN_NAMES else CLAIRVOYANT)
        ratio = f"{each.mean / against.mean:.2f}" if against else ""
        paper = "" if each.paper is None else _ms(each.paper)
        span = f"{_ms(min(each.means))}–{_ms(max(each.means))}" if len(each.means) > 1 else ""
        rows.append((each.name, paper, _ms(each.mean), span, _ms(each.median), _ms(each.p99), ratio, str(each.reports)))
    simulated = bounds.get(f"{setting.name}/{BOUND}")
    if simulated is not None:
        against = here.get(CLAIRVOYANT)
        ratio = f"{simulated / against.mean:.2f}" if against else ""
        rows.append(("bound (simulated)", "", _ms(simulated), "", "", "", ratio, ""))
    head = ("dispatcher", "thesis", "mean ms", "of phases", "p50", "p99", "/ clairvoyant", "reports")
    return Table(setting.title, head, rows)


def steady_table(setting: Setting, results: Sequence[Result]) -> Table:
    """Messages 500 to 999 by member, as the thesis's tables 7 and 8: n, least to most, mean ± deviation."""
    rows: list[tuple[str, ...]] = []
    first = {each.trial.contender.name: each for each in reversed(results) if each.trial.setting == setting}
    for name in STEADY_SHOWN:
        if name in PAPER_STEADY and setting.name == "scenario2":
            rows.append((f"{name}, thesis", *(_member(row) for row in PAPER_STEADY[name])))
        if name in first:
            rows.append((name, *(_member(row) for row in steady_rows(first[name]))))
    members = tuple(f"member {number} ({service * 1000:g} ms)" for number, service in enumerate(setting.services))
    return Table(f"{setting.name}, messages 500–999: n, min–max, mean ± sd (ms)", ("dispatcher", *members), rows)


def bars_table(bars: Sequence[Bar]) -> Table:
    rows = [(bar.what, f"{bar.value:.2f}", f"≤ {bar.limit:g}", "holds" if bar.holds else "MISSED") for bar in bars]
    return Table("promises", ("what", "is", "may be", ""), rows)


def noise_table(noises: dict[str, Noise]) -> Table:
    """One row for each setting."""
    head = ("setting", "sending late", "p99", "way to an idle member", "p99", "waking late", "p99")
    rows = [
        (name, *(f"{value:.2f}" for pair in (each.sending, each.way, each.waking) for value in pair))
        for name, each in noises.items()
    ]
    return Table("what the machine adds (ms)", head, rows)


def all_tables(
    found: Sequence[Summary],
    bounds: dict[str, float],
    results: Sequence[Result],
    bars: Sequence[Bar],
    noises: dict[str, Noise],
) -> list[Table]:
    ran = [setting for setting in SETTINGS if any(each.setting == setting for each in found)]
    means = [means_table(setting, found, bounds) for setting in ran]
    steady = [steady_table(setting, results) for setting in ran]
    return [*means, *(each for each in steady if each.rows), noise_table(noises), bars_table(bars)]


def _ms(value: float) -> str:
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _member(row: MemberRow) -> str:
    if row.count == 0:
        return "0"
    return f"{row.count}, {row.least:.0f}–{row.most:.0f}, {row.mean:.1f} ± {row.deviation:.1f}"
