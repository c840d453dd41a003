"""Delivered twice: a QoS 2 message that one session was handed again, a QoS 0 message that came again."""

from __future__ import annotations

from collections import defaultdict

from headwater_lab.check_broker.history import Delivery, History, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.claims import sessions_of
from headwater_lab.check_broker.promises import Promise


def judge_once(history: History) -> list[Verdict]:
    """Groups and wills have judges of their own; what was sent with QoS 1 may come again, and is counted."""
    once, at_most_once = Verdict(Promise.ONCE), Verdict(Promise.AT_MOST_ONCE)
    sent = {each.message: each for each in history.of(Publication) if each.will_of is None and not each.retain}
    sessions = sessions_of(history)
    shared = {claim.client for claim in sessions.claims if claim.group is not None}
    handed: dict[tuple[int, str, int], list[Delivery]] = defaultdict(list)
    for delivery in history.of(Delivery):
        if delivery.message in sent and delivery.fresh and not delivery.retain and delivery.client not in shared:
            handed[delivery.message, delivery.client, sessions.epoch(delivery)].append(delivery)
    for (message, client, _), deliveries in handed.items():
        publication = sent[message]
        if publication.qos == 1 or deliveries[0].qos < publication.qos:
            once.beside["QoS 1 again"] = once.beside.get("QoS 1 again", 0) + len(deliveries) - 1
            continue
        verdict = once if publication.qos == 2 else at_most_once
        verdict.looked_at += 1
        if len(deliveries) > 1:
            times = "once" if publication.sendings == 1 else f"{publication.sendings} times"
            text = (
                f"message {message} (QoS {publication.qos}; {publication.client} published it at {publication.target}, "
                f"sent {times}, {publication.outcome}) was handed to {client} {len(deliveries)} times, with QoS "
                + ", ".join(f"{each.qos}" for each in deliveries)
            )
            verdict.find(text, [publication, *deliveries])
    return [once, at_most_once]
