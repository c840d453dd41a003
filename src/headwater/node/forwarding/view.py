"""What can be seen of forwards from outside, by people and by metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field

from headwater.metric import Labels, counter, gauge


def _by_outcome(view: ForwardView) -> Mapping[Labels, float]:
    found = {"forwarded": view.forwarded, "sent_again": view.sent_again, "refused": view.refused}
    return {(name,): count for name, count in {**found, "given_up": view.given_up, **view.skipped}.items()}


@dataclass(frozen=True)
class ForwardView:
    """A forward now. `error` is why it is not up, "" if it is; `position`: up to here nothing is owed to the remote.
    Counts are since the broker started: `refused` were not taken, each time; `given_up` will not be sent again;
    `skipped` were not for the remote (any more), by why."""

    name: str
    addresses: list[str]
    client_id: str
    store: str
    position: int
    error: str
    up: bool = gauge("Whether the forward is up.", default=MISSING, name="forward_up")
    behind: int = gauge(
        "Positions of the store that may be owed to the remote.", default=MISSING, name="forward_behind_positions"
    )
    seconds_behind: float = gauge(
        "Age of the oldest message that is owed.",
        default=MISSING,
        name="forward_behind_seconds",
        doc="Looked at every few seconds.",
    )
    ranges: int = gauge("Ranges of positions that are owed.", default=MISSING, name="forward_ranges")
    under_way: int = gauge(
        "Messages that were sent and not acknowledged.", default=MISSING, name="forward_under_way_messages"
    )
    parked: int = gauge(
        "Messages that were refused and will be sent again.", default=MISSING, name="forward_parked_messages"
    )
    backlog_window: int = gauge(
        "Bytes of a backlog that may be under way at the moment.", default=MISSING, name="forward_backlog_window_bytes"
    )
    lost: int = counter(
        "Positions that retention removed before they were forwarded.", default=MISSING, name="forward_lost_positions"
    )
    bytes_forwarded: int = counter(
        "Bytes of payload that the remote has acknowledged.", default=MISSING, name="forward_forwarded_bytes"
    )
    forwarded: int = counter(
        "Messages by what became of them: forwarded, sent again (the remote may have had them), refused (each time), "
        "given up; or not sent as they were expired or had been at the remote (looped).",
        default=MISSING,
        name="forward_messages",
        labels=("outcome",),
        samples=_by_outcome,
    )
    sent_again: int = 0
    refused: int = 0
    given_up: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
