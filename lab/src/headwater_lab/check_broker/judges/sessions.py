"""Session state: a session that must be there is there, one that cannot be is not; taking over ends what was before."""

from __future__ import annotations

from typing import Final

from headwater_lab.check_broker.history import Connect, Ended, History, Outcome
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.promises import Promise

TAKE_OVER_LIMIT: Final = 5.0
"""Seconds after the CONNACK in which the earlier connection has to end."""


def judge_sessions(history: History) -> list[Verdict]:
    session, take_over = Verdict(Promise.SESSION), Verdict(Promise.TAKE_OVER)
    last: dict[str, Connect] = {}
    perhaps: set[str] = set()
    """Clients of which a CONNECT without an answer may have made a session, or ended one."""
    ends = {each.connection: each for each in history.of(Ended)}
    over = history.lasted
    for connect in history.of(Connect):
        if connect.outcome is Outcome.OK:
            _judge_present(session, connect, last.get(connect.client), connect.client in perhaps)
            last[connect.client] = connect
            perhaps.discard(connect.client)
            if connect.takes_over is not None and connect.ended is not None and over > connect.ended + TAKE_OVER_LIMIT:
                take_over.looked_at += 1
                end = ends.get(connect.takes_over)
                if end is None or end.at > connect.ended + TAKE_OVER_LIMIT:
                    text = (
                        f"{connect.client} connected again at {connect.target}, and its earlier connection was still "
                        f"open {TAKE_OVER_LIMIT:g} s later"
                    )
                    take_over.find(text, [connect, *([] if end is None else [end])])
        elif connect.outcome is Outcome.UNKNOWN:
            perhaps.add(connect.client)
    return [session, take_over]


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
