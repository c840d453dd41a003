"""Order: of one publisher, topic and QoS, a session first sees messages in the order of their first sending.

Repetitions (of QoS 1, or after a reconnect) may come later; only the first time counts. A message whose publisher never
learnt what became of it may have been taken late, and may not be sent again in its place: it is left out. A shared
group has no order. Without a session that surely began before, the first may have been missed and a repetition seen.
"""

from __future__ import annotations

from collections import defaultdict

from headwater_lab.check_broker.history import Delivery, History, Outcome, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.claims import Claim, sessions_of
from headwater_lab.check_broker.promises import Promise


def judge_order(history: History) -> list[Verdict]:
    verdict = Verdict(Promise.ORDER)
    sent = {
        each.message: each
        for each in history.of(Publication)
        if each.will_of is None and not each.retain and (each.qos == 0 or each.outcome is Outcome.OK)
    }
    sessions = sessions_of(history)
    claims: dict[str, list[Claim]] = defaultdict(list)
    for claim in sessions.claims:
        if claim.group is None:
            claims[claim.client].append(claim)
    latest: dict[tuple[str | int, ...], tuple[Publication, Delivery]] = {}
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    for delivery in history.of(Delivery):
        publication = sent.get(delivery.message)
        if publication is None or delivery.retain or not _was_subscribed(claims, publication, delivery):
            continue
        epoch = sessions.epoch(delivery)
        if publication.message in seen[delivery.client, epoch]:
            continue
        seen[delivery.client, epoch].add(publication.message)
        stream = (delivery.client, epoch, *_stream(publication))
        verdict.looked_at += 1
        if stream in latest and latest[stream][0].message > publication.message:
            later, when = latest[stream]
            text = (
                f"{delivery.client} got message {publication.message} of {publication.client} (QoS {publication.qos}) "
                f"after message {later.message}, which was sent after it"
            )
            verdict.find(text, [publication, later, when, delivery])
        else:
            latest[stream] = (publication, delivery)
    return [verdict]


def _stream(sent: Publication) -> tuple[str | int, ...]:
    """What has an order. QoS 0 of an earlier connection may be read after that of a later one."""
    return (sent.client, sent.topic, sent.qos, sent.connection if sent.qos == 0 else 0)


def _was_subscribed(claims: dict[str, list[Claim]], sent: Publication, delivery: Delivery) -> bool:
    """In this session from the first sending on: otherwise it may have missed that, and got a later one."""
    return any(
        claim.subscription.completed < sent.invoked and delivery.place < claim.until
        for claim in claims[delivery.client]
    )
