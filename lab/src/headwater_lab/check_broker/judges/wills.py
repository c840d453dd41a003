"""Wills: one of a client that died, none of one that took its leave; each watcher counts.

A connection that the broker ended, or that ended while a fault lasted, may leave a will or not (a Server may defer its
wills to its restart, and a crash may take them along): more than one is wrong nevertheless.
"""

from __future__ import annotations

from collections import defaultdict

from headwater_lab.check_broker.history import Connect, Delivery, Ended, History, Leave, Outcome, Publication
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.calm import Calm
from headwater_lab.check_broker.judges.claims import Claim, sessions_of
from headwater_lab.check_broker.promises import Promise


def judge_wills(history: History) -> list[Verdict]:
    """The second verdict is about those that were due while a fault lasted."""
    verdicts = Verdict(Promise.WILL), Verdict(Promise.WILL_IN_FAULTS)
    calm = Calm(history)
    connects = {each.connection: each for each in history.of(Connect)}
    ends = {each.connection: each for each in history.of(Ended)}
    leaves = {each.connection: each for each in history.of(Leave)}
    came: dict[tuple[int, str], list[Delivery]] = defaultdict(list)
    for delivery in history.of(Delivery):
        if delivery.fresh:
            came[delivery.message, delivery.client].append(delivery)
    claims = [claim for claim in sessions_of(history).claims if claim.group is None]
    for will in history.of(Publication):
        if will.will_of is None:
            continue
        connect, end, leave = (table.get(will.will_of) for table in (connects, ends, leaves))
        assert isinstance(connect, Connect)
        due = _due(connect, end if isinstance(end, Ended) else None, leave if isinstance(leave, Leave) else None)
        quiet = calm.at(will.began, history.lasted if not isinstance(end, Ended) else end.at)
        verdict = verdicts[0 if quiet else 1]
        about = [each for each in (will, connect, leave, end) if each is not None]
        for claim in claims:
            if claim.wants(will.topic) and claim.surely(will.invoked, end.place if isinstance(end, Ended) else 0):
                deliveries = came[will.message, claim.client]
                verdict.looked_at += 1
                text = _wrong(due, deliveries, history.overflowed)
                twice = _count(deliveries) > 1
                if text:
                    about_it = [*about, *deliveries]
                    (verdicts[0] if twice else verdict).find(_words(will, claim, text), about_it)
    return list(verdicts)


def _words(will: Publication, claim: Claim, text: str) -> str:
    return f"will {will.message} of {will.client} (connection {will.will_of}) {text} {claim.client}"


def _due(connect: Connect, end: Ended | None, leave: Leave | None) -> bool | None:
    """Whether a will must come; None: it may."""
    if connect.outcome is Outcome.FAILED:
        return False
    if connect.outcome is Outcome.UNKNOWN or end is None:
        return None
    if leave is not None:
        return False if leave.outcome is Outcome.OK else None
    return True if end.by_us else None


def _count(deliveries: list[Delivery]) -> int:
    """QoS 1 may be repeated with DUP."""
    return sum(delivery.qos == 2 or not delivery.dup for delivery in deliveries)


def _wrong(due: bool | None, deliveries: list[Delivery], overflowed: bool) -> str:
    count = _count(deliveries)
    if count > 1:
        return f"came {count} times to"
    if due is False and count:
        return "came, though the client had taken its leave (or was refused), to"
    if due is True and not deliveries and not overflowed:
        return "never came to"
    return ""
