"""Shared groups: a message goes to one member.

Published with QoS 2, to one and once, whatever happens (4.8.2: if the connection of the member that was chosen breaks,
the delivery is completed when it comes back). Published with QoS 1, it may come to another one if it was sent again, or
if the member that had it lost its connection. That it comes to nobody is the business of judge_acknowledged.
"""

from __future__ import annotations

from collections import defaultdict

from headwater_lab.check_broker.history import Connect, Delivery, Ended, History, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.claims import sessions_of
from headwater_lab.check_broker.promises import Promise


def judge_groups(history: History) -> list[Verdict]:
    verdict = Verdict(Promise.GROUP)
    sessions = sessions_of(history)
    sent = {each.message: each for each in history.of(Publication)}
    ended = {each.connection: each.place for each in history.of(Ended)}
    opened = {each.connection: each for each in history.of(Connect)}
    got: dict[tuple[int, str], list[Delivery]] = defaultdict(list)
    groups = {claim.client for claim in sessions.claims if claim.group is not None}
    for delivery in history.of(Delivery):
        if delivery.client not in groups or not delivery.fresh or delivery.message not in sent:
            continue
        group = sessions.group_of(delivery.client, delivery.topic)
        if group is not None:
            got[delivery.message, group].append(delivery)
    for (message, group), deliveries in got.items():
        publication = sent[message]
        verdict.looked_at += 1
        if len(deliveries) < 2 or publication.qos == 0:
            continue
        last = deliveries[-1].place
        again = publication.sendings > 1 or any(
            ended.get(each.connection, last) < last for each in deliveries if each.connection in opened
        )
        if publication.qos == 1 and again:
            verdict.beside["QoS 1 to several after a reconnect"] = (
                verdict.beside.get("QoS 1 to several after a reconnect", 0) + 1
            )
            continue
        who = ", ".join(delivery.client for delivery in deliveries)
        text = f"message {message} (QoS {publication.qos}) to the group {group} came {len(deliveries)} times: to {who}"
        verdict.find(text, [publication, *deliveries])
    return [verdict]
