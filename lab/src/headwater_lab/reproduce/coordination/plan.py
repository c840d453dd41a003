"""What is run, and what the paper found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

TOPICS: Final = 5
PUBLISHERS: Final = 10
SUBSCRIBERS: Final = 10
"""Of each topic: what goes out is ten times what comes in."""
INTERVALS: Final = (100.0, 50.0, 25.0, 5.0, 3.0, 1.0, 0.0)
"""Milliseconds between two messages of a publisher; 0: as fast as it can."""
FIXED: Final = 25.0
"""Milliseconds: the interval at which all set-ups are compared."""

LOCAL: Final = "local"
SCATTERED: Final = "scattered"
PLACEMENTS: Final = (LOCAL, SCATTERED)

PAPER_LIMITS: Final = {"single": 3.0, "proxy-flood": 5.0, "proxy-subscribe": 5.0, "line5-subscribe": 1.0}
"""Table 2, ms; clients of a topic at one broker. The fifth is the large server's, 1 ms."""
PAPER_LARGE: Final = 1.0
PAPER_TIMES: Final = 3.0
"""Section 6.2: how many times the throughput of one broker five had."""


@dataclass(frozen=True)
class Setup:
    """`kind` says what it is made of (systems.py), `method` how nodes tell what they want. `figure`: the paper's, if it
    has this set-up. `echo`: how a proxy knows what comes back."""

    name: str
    title: str
    kind: str = "mosquitto"
    count: int = 1
    method: str | None = None
    figure: int | None = None
    echo: str = "auto"

    @property
    def paper(self) -> float | None:
        return PAPER_LIMITS.get(self.name)


SINGLE: Final = Setup("single", "one broker", figure=8)
NAMED: Final = (
    SINGLE,
    Setup("proxy-flood", "one broker, proxy, flood", "proxied", 1, "flood", 10),
    Setup("proxy-subscribe", "one broker, proxy, subscribe", "proxied", 1, "subscribe", 11),
    Setup("line5-flood", "five brokers, proxies in a line, flood", "proxied", 5, "flood"),
    Setup("line5-subscribe", "five brokers, proxies in a line, subscribe", "proxied", 5, "subscribe", 12),
    Setup("line5-bloom", "five brokers, proxies in a line, bloom", "proxied", 5, "bloom"),
    Setup("cluster5-bloom", "five of our brokers, each linked with each, bloom", "cluster", 5, "bloom"),
)
"""Those of `--quick`, too."""
FURTHER: Final = (
    Setup("ours", "one broker of ours", "cluster", 1, "subscribe"),
    Setup("cluster5-flood", "five of our brokers, flood", "cluster", 5, "flood"),
    Setup("cluster5-subscribe", "five of our brokers, subscribe", "cluster", 5, "subscribe"),
    Setup(
        "line5-paper",
        "five brokers, proxies in a line, flood, the paper's loop detector",
        "proxied",
        5,
        "flood",
        echo="paper",
    ),
    Setup(
        "mixed5",
        "Mosquitto, RabbitMQ, NATS and aedes behind proxies, and a node of ours, subscribe",
        "mixed",
        5,
        "subscribe",
    ),
    Setup("bridges5", "five Mosquittos in a line by its own bridges", "bridged", 5),
)
SETUPS: Final = {each.name: each for each in (*NAMED, *FURTHER)}


@dataclass(frozen=True)
class Course:
    """Load with one interval. Times in seconds; `slow_us`: what the generator wastes for each message it gets."""

    interval_ms: float
    seconds: float
    warmup: float = 1.0
    probe_every: float = 1.0
    drain_limit: float = 15.0
    slow_us: int = 0

    @property
    def nominal(self) -> float | None:
        """Messages a second of all publishers, if they have an interval."""
        return TOPICS * PUBLISHERS * 1000.0 / self.interval_ms if self.interval_ms else None

    @property
    def total(self) -> float:
        return self.seconds + self.warmup


@dataclass(frozen=True)
class Sizes:
    """`searched` and `limit` are of whole runs only: the search for the limit, and the run at it. `patience`: seconds
    in which flagged trials are run again."""

    fixed: Course
    slow: Course
    patience: float
    searched: Course | None = None
    limit: Course | None = None


QUICK: Final = Sizes(Course(FIXED, 2.5, 0.5, 0.1, 10.0), Course(FIXED, 2.5, 0.2, drain_limit=3.0, slow_us=80), 60.0)


def whole(seconds: float) -> Sizes:
    """Of the run at the limit; the paper has 60."""
    fixed = Course(FIXED, min(seconds, 10.0), 1.0, 0.1)
    slow = Course(FIXED, 4.0, 0.5, drain_limit=5.0, slow_us=80)
    return Sizes(fixed, slow, math.inf, Course(FIXED, 3.0, 1.0, 0.5, 1.0), Course(FIXED, seconds, 1.0, 1.0, 5.0))
