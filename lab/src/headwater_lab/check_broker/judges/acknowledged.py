"""Acknowledged and lost: PUBACK or PUBREC came, and a session that was subscribed throughout never got it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from headwater_lab.check_broker.history import Delivery, History, Outcome, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.claims import Claim, sessions_of
from headwater_lab.check_broker.promises import Promise

PROMPT: Final = 1.0
"""Seconds after a SUBACK in which a target may not know of the subscription yet."""


def judge_acknowledged(history: History) -> list[Verdict]:
    """The second verdict is about messages that were sent within a second after SUBACK."""
    lost, prompt = Verdict(Promise.ACKNOWLEDGED), Verdict(Promise.PROMPT_SUBSCRIPTION)
    if history.overflowed:
        for verdict in (lost, prompt):
            verdict.undecided.append("the history was full, and deliveries were not kept: nothing is said to be lost")
        return [lost, prompt]
    got: dict[int, set[str]] = defaultdict(set)
    for delivery in history.of(Delivery):
        got[delivery.message].add(delivery.client)
    claims = [claim for claim in sessions_of(history).claims if claim.qos]
    for sent in history.of(Publication):
        if sent.will_of is not None or sent.retain:
            continue
        if sent.qos == 0:
            lost.beside["QoS 0 sent"] = lost.beside.get("QoS 0 sent", 0) + 1
            continue
        if sent.outcome is not Outcome.OK:
            continue
        for owed in _owed(claims, sent):
            settled = [claim for claim in owed if claim.subscription.ended is not None]
            late = all(sent.began < (claim.subscription.ended or 0.0) + PROMPT for claim in settled)
            verdict = prompt if late else lost
            verdict.looked_at += 1
            if not got[sent.message] & {claim.client for claim in owed}:
                _lost(verdict, sent, owed)
    return [lost, prompt]


def _owed(claims: Iterable[Claim], sent: Publication) -> Iterable[list[Claim]]:
    """Claims, of each list of which one client at least must have got it; a group's first are those that are sure."""
    groups: dict[str, list[Claim]] = defaultdict(list)
    sure: dict[str, list[Claim]] = defaultdict(list)
    single: dict[str, list[Claim]] = {}
    for claim in claims:
        if not claim.wants(sent.topic):
            continue
        surely = claim.surely(sent.invoked, sent.completed)
        if claim.group is not None:
            groups[claim.group].append(claim)
            if surely:
                sure[claim.group].append(claim)
        elif surely:
            single.setdefault(claim.client, [claim])
    yield from single.values()
    for name in sure:
        yield groups[name]


def _lost(verdict: Verdict, sent: Publication, owed: list[Claim]) -> None:
    who = " or ".join(sorted({claim.client for claim in owed}))
    text = f"message {sent.message} (QoS {sent.qos}) was acknowledged and never came to {who}"
    ended = [claim.lost_with for claim in owed if claim.lost_with is not None]
    if ended:
        text += ": its session was lost meanwhile"
    verdict.find(text, [sent, *(claim.subscription for claim in owed), *ended])
