"""Shared groups: a message goes to one member.

Published with QoS 2, to one and once, whatever happens (4.8.2: if the connection of the member that was chosen breaks,
the delivery is completed when it comes back). Published with QoS 1, it may come to another one if it was sent again, or
if the member that had it lost its connection. Acknowledged, it comes to one at least, if there was a member throughout.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from headwater_lab.check_broker.history import Delivery, Ended, History, Outcome, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.acknowledged import NOTHING_IS_LOST, is_prompt, receivers
from headwater_lab.check_broker.judges.claims import Claim, sessions_of
from headwater_lab.check_broker.promises import Promise

SEVERAL: Final = "QoS 1 to several after a reconnect"


def judge_groups(history: History) -> list[Verdict]:
    verdict = Verdict(Promise.GROUP)
    sessions = sessions_of(history)
    groups: dict[str, list[Claim]] = defaultdict(list)
    for claim in sessions.claims:
        if claim.group is not None:
            groups[claim.group].append(claim)
    for name, claims in groups.items():
        _judge_none(verdict, history, name, claims)
        _judge_several(verdict, history, name, claims)
    return [verdict]


def _judge_none(verdict: Verdict, history: History, group: str, claims: list[Claim]) -> None:
    if history.overflowed:
        verdict.undecided.append(NOTHING_IS_LOST)
        return
    got = receivers(history)
    members = {claim.client for claim in claims}
    for sent in history.of(Publication):
        if sent.qos == 0 or sent.outcome is not Outcome.OK or not claims[0].wants(sent.topic):
            continue
        sure = [claim for claim in claims if claim.qos and claim.surely(sent.invoked, sent.completed)]
        if not sure or all(is_prompt(claim, sent) for claim in sure):
            continue
        verdict.looked_at += 1
        if not got[sent.message] & members:
            text = (
                f"message {sent.message} (QoS {sent.qos}) to the group {group} was acknowledged and came to no member"
            )
            ended = [claim.lost_with for claim in sure if claim.lost_with is not None]
            verdict.find(text, [sent, *(claim.subscription for claim in sure), *ended])


def _judge_several(verdict: Verdict, history: History, group: str, claims: list[Claim]) -> None:
    sent = {each.message: each for each in history.of(Publication)}
    ended = {each.connection: each.place for each in history.of(Ended)}
    members = {claim.client for claim in claims}
    got: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in history.of(Delivery):
        if delivery.client in members and delivery.fresh and claims[0].wants(delivery.topic):
            got[delivery.message].append(delivery)
    for message, deliveries in got.items():
        publication = sent.get(message)
        if len(deliveries) < 2 or publication is None or publication.qos == 0:
            continue
        last = deliveries[-1].place
        again = publication.sendings > 1 or any(ended.get(each.connection, last) < last for each in deliveries)
        if publication.qos == 1 and again:
            verdict.beside[SEVERAL] = verdict.beside.get(SEVERAL, 0) + 1
            continue
        who = ", ".join(delivery.client for delivery in deliveries)
        text = f"message {message} (QoS {publication.qos}) to the group {group} came {len(deliveries)} times: to {who}"
        verdict.find(text, [publication, *deliveries])
