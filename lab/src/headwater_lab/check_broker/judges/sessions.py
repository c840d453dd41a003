"""Session state: a session that must be there is there, one that cannot be is not; taking over ends what was before."""

from __future__ import annotations

from typing import Final

from headwater_lab.check_broker.history import NEVER, Connect, Ended, History, Outcome, Subscription
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.calm import Calm
from headwater_lab.check_broker.promises import Promise

TAKE_OVER_LIMIT: Final = 3.0
"""Seconds after the CONNACK in which the earlier connection has to end."""


def judge_sessions(history: History) -> list[Verdict]:
    """The last verdict is about sessions without subscriptions."""
    session, take_over, empty = Verdict(Promise.SESSION), Verdict(Promise.TAKE_OVER), Verdict(Promise.EMPTY_SESSION)
    last: dict[str, Connect] = {}
    perhaps: set[str] = set()
    """Clients of which a CONNECT without an answer may have made a session, or ended one."""
    subscribed = {each.client: each.completed for each in reversed(list(history.of(Subscription)))}
    """Where the first SUBACK of each client came."""
    for connect in history.of(Connect):
        if connect.outcome is Outcome.OK:
            has_something = subscribed.get(connect.client, NEVER) < connect.invoked
            verdict = session if has_something or connect.clean or connect.present else empty
            _judge_present(verdict, connect, last.get(connect.client), connect.client in perhaps)
            last[connect.client] = connect
            perhaps.discard(connect.client)
        elif connect.outcome is Outcome.UNKNOWN:
            perhaps.add(connect.client)
    _judge_take_over(take_over, history)
    return [session, take_over, empty]


def _judge_take_over(verdict: Verdict, history: History) -> None:
    """A node that is stopped cannot end anything: only calm moments count."""
    calm = Calm(history)
    ends = {each.connection: each for each in history.of(Ended)}
    for connect in history.of(Connect):
        if connect.takes_over is None or connect.ended is None or connect.outcome is not Outcome.OK:
            continue
        limit = connect.ended + TAKE_OVER_LIMIT
        if history.lasted < limit or not calm.at(connect.began, limit):
            continue
        verdict.looked_at += 1
        end = ends.get(connect.takes_over)
        if end is None or end.at > limit:
            text = (
                f"{connect.client} connected again at {connect.target}, and its earlier connection was still open "
                f"{TAKE_OVER_LIMIT:g} s later"
            )
            verdict.find(text, [connect, *([] if end is None else [end])])


def _judge_present(verdict: Verdict, connect: Connect, former: Connect | None, perhaps: bool) -> None:
    verdict.looked_at += 1
    lasted = former is not None and not former.clean
    if connect.clean:
        if connect.present:
            verdict.find(f"{connect.client} asked for a clean session, and was told that one is present", [connect])
    elif lasted and not connect.present:
        assert former is not None
        text = f"the session of {connect.client}, last at {former.target}, was gone at {connect.target}"
        verdict.find(text, [former, connect])
    elif not lasted and connect.present and not perhaps:
        text = f"{connect.client} had no session, and was told that one is present"
        verdict.find(text, [connect])
