"""Acknowledged and lost: PUBACK or PUBREC came, and a session that was subscribed throughout never got it."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from headwater_lab.check_broker.history import Delivery, History, Outcome, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.claims import Claim, sessions_of
from headwater_lab.check_broker.promises import Promise

PROMPT: Final = 1.0
"""Seconds after a SUBACK in which a target may not know of the subscription yet."""
NOTHING_IS_LOST: Final = "the history was full, and deliveries were not kept: nothing is said to be lost"


def judge_acknowledged(history: History) -> list[Verdict]:
    """The second verdict is about messages that were sent within a second after SUBACK. Groups have their own judge."""
    lost, prompt = Verdict(Promise.ACKNOWLEDGED), Verdict(Promise.PROMPT_SUBSCRIPTION)
    if history.overflowed:
        for verdict in (lost, prompt):
            verdict.undecided.append(NOTHING_IS_LOST)
        return [lost, prompt]
    got = receivers(history)
    claims = [claim for claim in sessions_of(history).claims if claim.qos and claim.group is None]
    for sent in history.of(Publication):
        if sent.will_of is not None or sent.retain:
            continue
        if sent.qos == 0:
            lost.beside["QoS 0 sent"] = lost.beside.get("QoS 0 sent", 0) + 1
            continue
        if sent.outcome is not Outcome.OK:
            continue
        for claim in claims:
            if not claim.wants(sent.topic) or not claim.surely(sent.invoked, sent.completed):
                continue
            verdict = prompt if is_prompt(claim, sent) else lost
            verdict.looked_at += 1
            if claim.client not in got[sent.message]:
                text = f"message {sent.message} (QoS {sent.qos}) was acknowledged and never came to {claim.client}"
                ended = [] if claim.lost_with is None else [claim.lost_with]
                if ended:
                    text += ": its session was lost meanwhile"
                verdict.find(text, [sent, claim.subscription, *ended])
    return [lost, prompt]


def receivers(history: History) -> dict[int, set[str]]:
    """Who got each message."""
    got: dict[int, set[str]] = defaultdict(set)
    for delivery in history.of(Delivery):
        got[delivery.message].add(delivery.client)
    return got


def is_prompt(claim: Claim, sent: Publication) -> bool:
    """Whether it was sent so soon after SUBACK that another target may not know of the subscription."""
    return claim.subscription.ended is not None and sent.began < claim.subscription.ended + PROMPT
