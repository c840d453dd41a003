"""How large a filter has to be.

Theory. A Bloom filter of `b` bits with `n` elements and `k` positions for each says yes by mistake with the probability
p = (1 − e^(−kn/b))^k, which is least for k = b/n · ln 2; then b = −ln p / (ln 2)² · n (the paper's section 2.2). This
holds for one question. A look-up that asks many times errs more often: who wants p for a look-up sizes for p divided by
the questions.

`summary` has its bits in lines of 512, and what is stored about one prefix goes into one line. Lines are not equally
full: with a mean of x bits inserted into a line, what is inserted is a sum of about Poisson many facts, and the mean of
(share of ones)^k over such lines is larger than that of the mean line, for k = 12 almost three times. So the size is
found by looking for it: the most bits in a line for which the mean over lines is small enough.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

LINE_BITS: Final = 512
LINE_BYTES: Final = LINE_BITS // 8
LEAST_LINES: Final = 8
MOST_LINES: Final = 1 << 28
INNER: Final = 6
"""Positions of a fact that only leads on: by mistake it costs a line, not a needless transfer."""
ASTRAY: Final = 0.03
"""How often a fact that leads on may be found by mistake."""
FEWEST: Final = 4
MOST: Final = 30
"""Positions of a fact that ends a search."""


class Bloom(NamedTuple):
    bits: int
    positions: int


def bloom(elements: int, p: float, positions: int = 0) -> Bloom:
    """The paper's formulas, rounded up; p is for one question. With fewer positions than theirs, a filter is larger and
    sooner filled."""
    check_rate(p)
    if positions:
        share = p ** (1 / positions)  # of ones
        return Bloom(max(8, math.ceil(-positions * max(1, elements) / math.log1p(-share))), positions)
    bits = max(8, math.ceil(-math.log(p) / math.log(2) ** 2 * max(1, elements)))
    return Bloom(bits, max(1, round(bits / max(1, elements) * math.log(2))))


class Geometry(NamedTuple):
    """Of a summary: its lines, and positions of each kind of fact."""

    lines: int
    inner: int
    terminal: int


def check_rate(p: float) -> None:
    if not 0.0 < p < 1.0:
        raise ValueError(f"a rate of false positives is between 0 and 1, not {p}")


def geometry(inner: int, terminal: int, tests: int, p: float) -> Geometry:
    """For so many facts of the two kinds and so many terminal ones asked for in a look-up, which is to err with p."""
    check_rate(p)
    share = round(terminal / max(1, inner + terminal), 2)
    positions, load = _best(share, max(1, tests), p)
    bits = inner * INNER + terminal * positions
    lines = min(MOST_LINES, max(LEAST_LINES, math.ceil(bits / load)))
    return Geometry(lines, INNER, positions)


def capacity(made: Geometry, tests: int, p: float, share: float) -> int:
    """Bits that may be inserted before such a filter errs more often than p in a look-up."""
    return int(made.lines * _most_load(made.terminal, round(share, 2), max(1, tests), p))


@lru_cache(maxsize=1024)
def _best(share: float, tests: int, p: float) -> tuple[int, float]:
    """Positions of a terminal fact, and bits for a line, for which a filter is smallest."""
    found = (0.0, MOST, 1.0)
    for positions in range(FEWEST, MOST + 1):
        load = _most_load(positions, share, tests, p)
        mean = share * positions + (1.0 - share) * INNER
        found = max(found, (load / mean, positions, load))
    return found[1], found[2]


@lru_cache(maxsize=1024)
def _most_load(positions: int, share: float, tests: int, p: float) -> float:
    """The most bits inserted into a line, in the mean, with which tests of so many positions err rarely enough."""
    low, high = 1e-3, 4.0 * LINE_BITS
    for _ in range(40):
        middle = (low + high) / 2
        mean = share * positions + (1.0 - share) * INNER
        square = share * positions**2 + (1.0 - share) * INNER**2
        deviation = math.sqrt(middle / mean * square)
        if _errs(middle, deviation, positions) * tests <= p and _errs(middle, deviation, INNER) <= ASTRAY:
            low = middle
        else:
            high = middle
    return low


def _errs(load: float, deviation: float, positions: int) -> float:
    """How often a test of so many positions errs, as the mean over lines with such loads, which are taken as normal."""
    total = weight = 0.0
    for step in range(-16, 17):
        z = step / 4
        density = math.exp(-z * z / 2)
        inserted = max(0.0, load + z * deviation)
        total += density * (1.0 - math.exp(-inserted / LINE_BITS)) ** positions
        weight += density
    return total / weight
