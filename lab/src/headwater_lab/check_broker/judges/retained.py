"""Retained messages: one register for each topic. A linearizable one shows no reader an older message than was
acknowledged before it asked, nor the future, nor goes back; a convergent one ends at every target with the same
message, which no later write replaced.

The search (linearizable.py) decides; what people are told is the shortest contradiction that there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from headwater_lab.check_broker.history import NEVER, History, Outcome, Publication, Read
from headwater_lab.check_broker.judges import Finding, Verdict
from headwater_lab.check_broker.judges.linearizable import Decision, RegisterOperation, linearizable
from headwater_lab.check_broker.promises import Promise


def judge_retained(history: History) -> list[Verdict]:
    register, converges = Verdict(Promise.RETAINED_LINEARIZABLE), Verdict(Promise.RETAINED_CONVERGES)
    writes: dict[str, list[Publication]] = defaultdict(list)
    reads: dict[str, list[Read]] = defaultdict(list)
    for write in history.of(Publication):
        if write.retain and write.outcome is not Outcome.FAILED:
            writes[write.topic].append(write)
    for read in history.of(Read):
        if read.outcome is Outcome.OK:
            reads[read.topic].append(read)
    for topic in sorted(writes):
        _judge_register(register, topic, writes[topic], [read for read in reads[topic] if not read.final])
        _judge_end(converges, topic, writes[topic], [read for read in reads[topic] if read.final])
    return [register, converges]


# ---- linearizable ----------------------------------------------------------------------------------------------


def _judge_register(verdict: Verdict, topic: str, writes: list[Publication], reads: list[Read]) -> None:
    verdict.looked_at += len(reads)
    found = list(_contradictions(writes, reads))
    if found:
        verdict.findings += found
        return
    operations = [RegisterOperation(write.invoked, write.completed, write.message, True) for write in writes]
    operations += [RegisterOperation(read.invoked, read.completed, read.message, False) for read in reads]
    decision = linearizable(operations)
    if decision is Decision.NOT_DECIDED:
        verdict.undecided.append(f"{topic}: {len(operations)} operations are too many to decide")
    elif decision is Decision.NOT_LINEARIZABLE:
        text = f"no order of its {len(operations)} operations explains all reads of {topic}"
        verdict.find(text, [*writes[-3:], *reads[-3:]])


def _contradictions(writes: list[Publication], reads: list[Read]) -> Iterator[Finding]:
    """One for each read that two or three operations prove wrong."""
    written = {write.message: write for write in writes}
    surely = sorted((write for write in writes if write.outcome is Outcome.OK), key=lambda write: write.completed)
    newest: tuple[Publication, Read] | None = None
    """The write that began last of all that were seen, and who saw it."""
    for read in sorted(reads, key=lambda read: read.invoked):
        write = written.get(read.message)
        if read.message and (write is None or write.invoked > read.completed):
            yield Finding(f"{read.client} read message {read.message} of {read.topic} before it was sent", [read])
            continue
        over = NEVER if read.message and write is None else 0 if write is None else write.completed
        before = [later for later in surely if later.completed < read.invoked and later.invoked > over]
        what = f"message {read.message}" if read.message else "nothing"
        if before:
            text = f"{read.client} read {what} of {read.topic} at {read.target}, and message {before[-1].message}"
            about = [*([] if write is None else [write]), before[-1], read]
            yield Finding(f"{text} was acknowledged before", about)
        elif newest is not None and newest[1].completed < read.invoked and newest[0].invoked > over:
            text = f"{read.client} read {what} of {read.topic} at {read.target}, after {newest[1].client} had read"
            about = [*([] if write is None else [write]), newest[0], newest[1], read]
            yield Finding(f"{text} message {newest[0].message}", about)
        if write is not None and (newest is None or write.invoked > newest[0].invoked):
            newest = (write, read)


# ---- convergent ------------------------------------------------------------------------------------------------


def _judge_end(verdict: Verdict, topic: str, writes: list[Publication], finals: list[Read]) -> None:
    last = {read.target: read for read in finals}
    if not last:
        verdict.undecided.append(f"{topic} could not be read in the end")
        return
    verdict.looked_at += len(last)
    if len({read.message for read in last.values()}) > 1:
        shown = ", ".join(f"{read.message or 'nothing'} at {target}" for target, read in sorted(last.items()))
        verdict.find(f"in the end targets show different messages of {topic}: {shown}", _with_writes(writes, last))
        return
    message = next(iter(last.values())).message
    write = next((write for write in writes if write.message == message), None)
    over = 0 if write is None else write.completed
    later = [each for each in writes if each.outcome is Outcome.OK and each.invoked > over]
    if later:
        shown = f"message {message}" if message else "nothing"
        text = f"in the end {topic} shows {shown}, and message {later[-1].message} was acknowledged, sent after it"
        verdict.find(text, [*([] if write is None else [write]), later[-1], *last.values()])


def _with_writes(writes: list[Publication], last: dict[str, Read]) -> list[Publication | Read]:
    shown = {read.message for read in last.values()}
    return [*(write for write in writes if write.message in shown), *last.values()]
