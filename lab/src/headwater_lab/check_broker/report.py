"""The outcome of a run: as text for people, as JSON for programs, as a page with drawings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from headwater_lab.check_broker.features import VERSION_NAMES
from headwater_lab.check_broker.history import (
    Connect,
    Delivery,
    Ended,
    Fault,
    Leave,
    Observation,
    Oddity,
    Operation,
    Phase,
    Publication,
    Read,
    Subscription,
    as_record,
    first_place,
)
from headwater_lab.check_broker.judges import Finding, Verdict
from headwater_lab.check_broker.promises import WORDS, Promise
from headwater_lab.check_broker.run import Recorded, counts_of

MOST_FINDINGS: Final = 20
"""Of one promise, in JSON and pages."""
MOST_ENTRIES: Final = 12
"""Of one finding."""


class Status(StrEnum):
    KEPT = "kept"
    BROKEN = "BROKEN"
    SEEN = "seen"
    """Found, and promised by nobody."""
    NOT_SEEN = "not seen"
    NOT_CHECKED = "not checked"
    NOT_DECIDED = "not decided"


@dataclass
class Report:
    recorded: Recorded
    profile: str
    promised: frozenset[Promise]
    verdicts: Sequence[Verdict]

    @property
    def violations(self) -> int:
        return sum(len(each.findings) for each in self.verdicts if each.promise in self.promised)

    def status(self, verdict: Verdict) -> Status:
        is_promised = verdict.promise in self.promised
        if verdict.findings:
            return Status.BROKEN if is_promised else Status.SEEN
        if verdict.undecided:
            return Status.NOT_DECIDED
        if not verdict.looked_at:
            return Status.NOT_CHECKED
        return Status.KEPT if is_promised else Status.NOT_SEEN


# ---- for programs ----------------------------------------------------------------------------------------------


def as_json(report: Report, machine: dict[str, str]) -> dict[str, Any]:
    settings, history = report.recorded.settings, report.recorded.history
    return {
        "machine": machine,
        "outcome": "broken" if report.violations else "kept",
        "violations": report.violations,
        "targets": [str(target) for target in settings.targets],
        "settings": {
            "profile": report.profile,
            "promised": sorted(report.promised),
            "seconds": settings.seconds,
            "seed": settings.seed,
            "rate": settings.rate,
            "faults": [asdict(fault) for fault in settings.faults],
        },
        "features": {
            "mqtt": VERSION_NAMES[report.recorded.features.version],
            "qos": report.recorded.features.qos,
            "remarks": report.recorded.features.remarks,
        },
        "counts": {**counts_of(history), "entries": len(history.entries), "dropped": history.dropped},
        "faults": [as_record(fault) for fault in history.of(Fault)],
        "promises": [_verdict_as_json(report, verdict) for verdict in report.verdicts],
    }


def _verdict_as_json(report: Report, verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.promise,
        "what": WORDS[verdict.promise],
        "promised": verdict.promise in report.promised,
        "status": report.status(verdict).lower(),
        "looked_at": verdict.looked_at,
        "violations": len(verdict.findings),
        "allowed": verdict.beside,
        "undecided": verdict.undecided,
        "findings": [
            {"text": finding.text, "history": [as_record(entry) for entry in in_order(finding)]}
            for finding in verdict.findings[:MOST_FINDINGS]
        ],
    }


# ---- for people ------------------------------------------------------------------------------------------------


def text(report: Report, shown: int = 3) -> str:
    """`shown`: findings of each promise with their history."""
    lines = [*_head(report), "", *_table(report)]
    for verdict in report.verdicts:
        lines += _details(report, verdict, shown)
    lines += ["", _conclusion(report)]
    return "\n".join(lines)


def _head(report: Report) -> Iterator[str]:
    settings, features, history = report.recorded.settings, report.recorded.features, report.recorded.history
    counts = counts_of(history)
    faults = list(history.of(Fault))
    yield f"targets   {', '.join(map(str, settings.targets))}"
    remarks = "".join(f"; {remark}" for remark in features.remarks)
    yield f"clients   MQTT {VERSION_NAMES[features.version]}, QoS up to {features.qos}{remarks}"
    yield f"load      {settings.seconds:g} s, seed {settings.seed}, profile {report.profile}"
    names = {name: sum(fault.name == name for fault in faults) for name in dict.fromkeys(each.name for each in faults)}
    yield f"faults    {', '.join(f'{name} ({count})' for name, count in names.items()) or 'none'}"
    yield (
        f"history   {counts['published']:,} published, {counts['acknowledged']:,} acknowledged, {counts['unknown']:,} "
        f"of unknown outcome, {counts['delivered']:,} delivered, {counts['reads']:,} retained reads"
    )
    if history.full:
        yield f"          it was full after {history.limit:,} entries: the load ended early"


def _table(report: Report) -> Iterator[str]:
    yield f"{'promise':<22}{'outcome':<13}{'looked at':>10}{'found':>8}"
    for verdict in report.verdicts:
        found = f"{len(verdict.findings):,}" if verdict.findings else ""
        looked_at = f"{verdict.looked_at:,}"
        yield f"{verdict.promise:<22}{report.status(verdict):<13}{looked_at:>10}{found:>8}"


def _details(report: Report, verdict: Verdict, shown: int) -> Iterator[str]:
    status = report.status(verdict)
    if verdict.beside:
        allowed = ", ".join(f"{count:,} × {what}" for what, count in verdict.beside.items() if count)
        if allowed:
            yield f"\n{verdict.promise}, counted: {allowed}"
    for reason in verdict.undecided:
        yield f"\n{verdict.promise}, not decided: {reason}"
    if not verdict.findings:
        return
    said = "Promised" if status is Status.BROKEN else "Not promised"
    yield f"\n{status.upper()} {verdict.promise}. {said}: {WORDS[verdict.promise]}. Found: {len(verdict.findings):,}."
    for number, finding in enumerate(verdict.findings[:shown], 1):
        yield f"  {number}. {finding.text}"
        yield from (f"       {line}" for line in story(finding))
    if len(verdict.findings) > shown:
        yield f"  … and {len(verdict.findings) - shown:,} more (--json has {MOST_FINDINGS}, --show N shows more)"


def _conclusion(report: Report) -> str:
    if report.violations:
        broken = [verdict.promise for verdict in report.verdicts if report.status(verdict) is Status.BROKEN]
        return f"{report.violations:,} violations of what is promised: {', '.join(broken)}."
    open_questions = [each.promise for each in report.verdicts if report.status(each) is Status.NOT_DECIDED]
    rest = f"; not decided: {', '.join(open_questions)}" if open_questions else ""
    return f"Nothing that is promised was seen broken{rest}."


def in_order(finding: Finding) -> list[Operation | Observation]:
    """Its entries as they happened, not too many."""
    entries = {first_place(entry): entry for entry in finding.entries}
    ordered = [entries[place] for place in sorted(entries)]
    if len(ordered) > MOST_ENTRIES:
        return [*ordered[: MOST_ENTRIES // 2], *ordered[-MOST_ENTRIES // 2 :]]
    return ordered


def story(finding: Finding) -> Iterable[str]:
    """The history of a finding, a line each."""
    return (
        f"{_when(entry):<21} {entry.client or '-':<18} {entry.target:<18} {what(entry)}" for entry in in_order(finding)
    )


def _when(entry: Operation | Observation) -> str:
    if isinstance(entry, Observation):
        return f"{entry.at:.3f} s"
    return f"{entry.began:.3f} – {'?' if entry.ended is None else f'{entry.ended:.3f}'} s"


def what(entry: Operation | Observation) -> str:
    """One entry in the words of the protocol."""
    match entry:
        case Connect():
            how = "clean" if entry.clean else "session kept"
            before = f", connection {entry.takes_over} still open" if entry.takes_over is not None else ""
            answer = (
                f"{entry.outcome}, session present {int(entry.present)}" if entry.outcome == "ok" else entry.outcome
            )
            return f"CONNECT ({how}{before}) as connection {entry.connection}: {answer}"
        case Publication(will_of=None):
            flags = " retain" if entry.retain else ""
            again = f", sent {entry.sendings} times" if entry.sendings > 1 else ""
            outcome = "sent" if entry.qos == 0 else entry.outcome
            return f"PUBLISH message {entry.message} QoS {entry.qos}{flags} to {entry.topic}{again}: {outcome}"
        case Publication():
            return f"will: message {entry.message} QoS {entry.qos} to {entry.topic}, of connection {entry.will_of}"
        case Subscription():
            return f"SUBSCRIBE {entry.filter} QoS {entry.qos}: {entry.outcome}, granted {entry.granted}"
        case Read():
            return f"reads retained {entry.topic}: {entry.message or 'nothing'} ({entry.outcome})"
        case Leave():
            return f"DISCONNECT on connection {entry.connection}: {entry.outcome}"
        case Fault():
            return f"fault {entry.name}"
        case Delivery():
            flags = (" dup" if entry.dup else "") + (" retain" if entry.retain else "")
            return (
                f"gets message {entry.message} QoS {entry.qos}{flags} on {entry.topic}, connection {entry.connection}"
            )
        case Ended():
            return f"connection {entry.connection} ended by {'the client' if entry.by_us else 'the broker'}"
        case Oddity():
            return entry.text
        case Phase():
            return f"{entry.name} begins"
    return type(entry).__name__
