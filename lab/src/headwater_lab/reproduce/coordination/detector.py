"""Whether the load generator itself was the bottleneck of a trial: then the trial does not tell what the brokers can.

The signs, of which the paper watches the first three (its fourth, PAUSE frames of Ethernet, is not on loopback):

- processor: a thread of the generator ran, or waited for a processor, nearly all of the time, in more than a fifth of
  the samples. Waiting counts, as another program that takes the processor makes the generator slow all the same.
- receive window: a subscriber's window shrank below half of what it was; it does not read what comes.
- retransmissions: more than one segment in a hundred was sent again or came out of order. A processor that is late to
  acknowledge makes some on loopback, too.
- send queue: more than one message in a hundred was due and not sent though the socket would have taken it. A socket
  that is full is the broker's doing and no sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headwater_lab.reproduce.coordination.generator import Sample

FULL: Final = 0.95
OFTEN: Final = 0.2
SHRUNK: Final = 0.5
SENT_AGAIN: Final = 0.01
OVERDUE: Final = 0.01


class Signs(NamedTuple):
    """`busy`: the part of samples in which a thread had or wanted a processor all the time; `window`: the least, as a
    part of the widest; `sent_again`: of all segments; `overdue`: of all messages that were due."""

    busy: float
    processor: float
    window: float
    sent_again: float
    overdue: float

    @property
    def causes(self) -> list[str]:
        """Why the trial is flagged; none: it is not."""
        found = {
            "processor": self.busy > OFTEN,
            "receive window": self.window < SHRUNK,
            "retransmissions": self.sent_again > SENT_AGAIN,
            "send queue": self.overdue > OVERDUE,
        }
        return [name for name, is_seen in found.items() if is_seen]


def signs(samples: Sequence[Sample]) -> Signs:
    """`processor`: the mean of the busier thread, of a core."""
    shares = [_busier(before, after) for before, after in pairwise(samples)]
    last, first = samples[-1], samples[0]
    segments = last.segments - first.segments
    again = last.retransmitted - first.retransmitted + last.out_of_order - first.out_of_order
    due = last.attempted - first.attempted + last.overdue - first.overdue
    return Signs(
        sum(share >= FULL for share in shares) / len(shares) if shares else 0.0,
        sum(shares) / len(shares) if shares else 0.0,
        min(each.window for each in samples),
        again / segments if segments else 0.0,
        (last.overdue - first.overdue) / due if due else 0.0,
    )


def _busier(before: Sample, after: Sample) -> float:
    seconds = after.at - before.at
    sender = after.sender - before.sender + after.sender_waited - before.sender_waited
    receiver = after.receiver - before.receiver + after.receiver_waited - before.receiver_waited
    return max(sender, receiver) / seconds
