"""What is run, and what the thesis found.

A *setting* is what the members are and how fast messages come. A *contender* is a dispatcher with the clients it gets.
A *trial* is one contender in one setting with one phase of the report timers; it has a broker of its own. All trials
of a setting and a phase run side by side in a *batch*, so that they share whatever the machine does meanwhile.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import ceil
from typing import Final

from headwater.routing.shared import DISPATCHERS

DURATION: Final = 15.0
PAYLOAD: Final = 100
INTERVAL: Final = 1.0
"""Seconds between reports."""
STEADY: Final = range(500, 1000)
"""Numbers of the messages that the thesis's tables 7 and 8 are about."""
PHASES: Final = 5
LEAD: Final = 0.5
"""Seconds that a member is connected before the first message, at least; at most INTERVAL more, by its phase. So about
half of the members send a report before there was anything to process: the start fault of `score`."""

CLAIRVOYANT: Final = "clairvoyant"
CLAIRVOYANT_QOS1: Final = "clairvoyant-qos1"
ADAPTIVE_QOS1: Final = "adaptive-qos1-plain"
ADAPTIVE_QOS1_THREAD: Final = "adaptive-qos1-thread"


@dataclass(frozen=True)
class Setting:
    """`services`: seconds that a message takes each member. `period`: seconds between messages."""

    name: str
    title: str
    services: tuple[float, ...]
    period: float


@dataclass(frozen=True)
class Contender:
    """`early`: members also report when their queue has changed, besides once per INTERVAL. `plain`: paho members that
    never report; they acknowledge each message, with QoS 1, when they have processed it. `threaded`: they do so in
    paho's own thread, which acknowledges later (see paho_members)."""

    name: str
    dispatcher: str
    early: bool = True
    plain: bool = False
    threaded: bool = False

    @property
    def qos(self) -> int:
        return 1 if self.plain else 0


@dataclass(frozen=True)
class Trial:
    """`phases`: of each member's report timer, in intervals. `offset`: seconds by which its publisher starts later than
    others of its batch, so that they do not all send at the same moment. `seed`: of the `random` dispatcher."""

    setting: Setting
    contender: Contender
    phases: tuple[float, ...]
    offset: float
    duration: float = DURATION
    seed: int = 1

    @property
    def messages(self) -> int:
        return ceil(self.duration / self.setting.period - 1e-9)

    @property
    def leads(self) -> tuple[float, ...]:
        """Seconds from a member's connection to the first message."""
        return tuple(LEAD + phase * INTERVAL for phase in self.phases)


SCENARIO1: Final = Setting("scenario1", "scenario 1: 25/25/25 ms, a message every 10 ms", (0.025, 0.025, 0.025), 0.0100)
SCENARIO2: Final = Setting(
    "scenario2", "scenario 2: 25/25/50 ms, a message every 10.4 ms", (0.025, 0.025, 0.050), 0.0104
)
SCENARIO2_10MS: Final = Setting(
    "scenario2-10ms", "scenario 2 at 100 %: 25/25/50 ms, a message every 10 ms", (0.025, 0.025, 0.050), 0.0100
)
SETTINGS: Final = (SCENARIO1, SCENARIO2, SCENARIO2_10MS)

# The thesis's dispatcher gets what it got there, a report per second; ours may be told more.
REPORTING: Final = (
    Contender("random", "random", early=False),
    Contender("round_robin", "round_robin", early=False),
    Contender("score", "score", early=False),
    Contender("score_mended", "score_mended", early=False),
    Contender("adaptive", "adaptive"),
    Contender(CLAIRVOYANT, CLAIRVOYANT),
)
PLAIN: Final = (
    Contender(ADAPTIVE_QOS1, "adaptive", plain=True),
    Contender(ADAPTIVE_QOS1_THREAD, "adaptive", plain=True, threaded=True),
    Contender(CLAIRVOYANT_QOS1, CLAIRVOYANT, plain=True),
)
OTHERS: Final = tuple(
    Contender(name, name) for name in sorted(DISPATCHERS) if name not in {each.dispatcher for each in REPORTING}
)

PAPER_MEANS: Final = {
    "scenario2/random": 1400.7,
    "scenario2/round_robin": 1492.3,
    "scenario2/score": 27.4,
}
"""Milliseconds, mean over all messages. Of scenario 1 the thesis has a figure without numbers."""


@dataclass(frozen=True)
class MemberRow:
    """A row of the thesis's tables 7 and 8, in milliseconds."""

    count: int
    least: float
    most: float
    mean: float
    deviation: float


PAPER_STEADY: Final = {
    "round_robin": (
        MemberRow(167, 0, 6, 0.9, 0.7),
        MemberRow(166, 0, 8, 1.0, 0.8),
        MemberRow(167, 3075, 6250, 4664.1, 923.4),
    ),
    "score": (
        MemberRow(199, 1, 10, 3.4, 2.4),
        MemberRow(199, 1, 13, 3.7, 2.5),
        MemberRow(102, 13, 71, 34.8, 17.8),
    ),
}


def phases(count: int, members: int, seed: int) -> list[tuple[float, ...]]:
    """For each of `count` repetitions the phase of each member's report timer: spread evenly over the repetitions, and
    at random between the members."""
    chance = random.Random(seed)
    return [tuple((number / count + chance.random()) % 1.0 for _ in range(members)) for number in range(count)]


def batches(quick: bool, seed: int, duration: float = DURATION) -> list[list[Trial]]:
    """What is run together, in order. The bars are about scenario 2, so it is alone even when time is short."""
    together = [[SCENARIO2], [SCENARIO1, SCENARIO2_10MS]] if quick else [[setting] for setting in SETTINGS]
    planned = [
        _batch(
            [(setting, each) for setting in settings for each in _contenders(setting)], phase, duration, seed + number
        )
        for number, phase in enumerate(phases(1 if quick else PHASES, 3, seed))
        for settings in together
    ]
    if not quick:
        [phase] = phases(1, 3, seed + 1)
        planned += [_batch([(setting, each) for each in OTHERS], phase, duration, seed) for setting in SETTINGS]
    return planned


def _contenders(setting: Setting) -> tuple[Contender, ...]:
    return REPORTING if setting is SCENARIO1 else (*REPORTING, *PLAIN)


def _batch(pairs: list[tuple[Setting, Contender]], phase: tuple[float, ...], duration: float, seed: int) -> list[Trial]:
    step = pairs[0][0].period / len(pairs)
    return [
        Trial(setting, contender, phase, number * step, duration, seed)
        for number, (setting, contender) in enumerate(pairs)
    ]
