"""The score of a master's thesis, as it stands there: a baseline.

轟木 皓平, "MQTT 共有サブスクリプションにおけるサブスクライバ群の状態を考慮した動的負荷分散手法"
(dynamic load balancing by the state of the subscribers in MQTT shared subscriptions), Hiroshima University.

Of each member is kept: m_q, the messages pending at its last report; m_s, those sent since; t_p, the mean of
its last five reported processing times; t_r and t_s, the times of the last report and the last dispatch (both the time
of connecting, at first). The member with the highest

    score = (t_n - t_s) - max((m_q + m_s) · t_p - (t_n - t_r), 0)

is chosen; one with t_p = 0 is given the mean t_p of the group. Without reports it is round robin.

Its start fault is kept in `score`: a report sent before anything was processed counts as a processing time of zero and
lowers t_p for the next four reports. `score_mended` takes no time sample from such a report, and is else the same.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import mypyc_attr

from headwater.routing.dispatcher import Dispatcher, Member

SAMPLES: Final = 5
JUST_BEFORE: Final = 1e-6  # seconds since it connected, when it is first offered


class _State:
    def __init__(self) -> None:
        self.pending = 0
        self.sent = 0
        self.samples: list[float] = []
        self.mean = 0.0
        self.reported_at = -1.0  # -1.0: it has not been offered yet
        self.sent_at = 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Score(Dispatcher):
    """The highest score is next. A topic's order holds for each member but not across them. A choice looks at all
    members."""

    def __init__(self, counts_empty_reports: bool = True) -> None:
        self._counts_empty_reports = counts_empty_reports

    def joined(self, member: Member) -> None:
        member.model = _State()

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        average = self._average(members)
        chosen = members[0]
        best = float("-inf")
        for member in members:
            state = cast(_State, member.model)
            if state.reported_at < 0.0:
                state.reported_at = now
                state.sent_at = now - JUST_BEFORE
            mean = state.mean if state.mean > 0.0 else average
            late = (state.pending + state.sent) * mean - (now - state.reported_at)
            score = (now - state.sent_at) - max(late, 0.0)
            if score > best and member.ready:
                best = score
                chosen = member
        state = cast(_State, chosen.model)
        state.sent += 1
        state.sent_at = now
        return chosen

    def beliefs(self, member: Member, now: float) -> dict[str, float]:
        mean = cast(_State, member.model).mean
        return {"seconds_per_message": mean} if mean > 0.0 else {}

    def _average(self, members: list[Member]) -> float:
        total = 0.0
        known = 0
        for member in members:
            mean = cast(_State, member.model).mean
            if mean > 0.0:
                total += mean
                known += 1
        return total / known if known else 0.0

    def reported(self, member: Member, waiting: int, seconds_per_message: float | None, now: float) -> None:
        state = cast(_State, member.model)
        state.pending = waiting
        state.sent = 0
        state.reported_at = now
        if seconds_per_message is not None or self._counts_empty_reports:
            state.samples.append(seconds_per_message or 0.0)
            if len(state.samples) > SAMPLES:
                del state.samples[0]
            state.mean = sum(state.samples) / len(state.samples)


class MendedScore(Score):
    """`Score` without its start fault."""

    def __init__(self) -> None:
        super().__init__(counts_empty_reports=False)
