"""What is delivered was published, to that topic, is whole, and is not sent in a way that no broker may send."""

from __future__ import annotations

from headwater_lab.check_broker.history import Delivery, History, Oddity, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.promises import Promise


def judge_integrity(history: History) -> list[Verdict]:
    verdict = Verdict(Promise.INTEGRITY)
    sent = {each.message: each for each in history.of(Publication)}
    for delivery in history.of(Delivery):
        verdict.looked_at += 1
        publication = sent.get(delivery.message)
        if delivery.message < 1:
            verdict.find(f"{delivery.client} got a payload on {delivery.topic} that is damaged or not ours", [delivery])
        elif publication is None or publication.invoked > delivery.place:
            text = f"{delivery.client} got message {delivery.message}, which was not sent yet"
            verdict.find(text, [delivery])
        elif publication.topic != delivery.topic:
            text = f"message {delivery.message} to {publication.topic} came to {delivery.client} as {delivery.topic}"
            verdict.find(text, [publication, delivery])
    for oddity in history.of(Oddity):
        verdict.find(f"{oddity.client} {oddity.text}", [oddity])
    return [verdict]
