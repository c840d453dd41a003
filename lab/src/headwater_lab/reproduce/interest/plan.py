"""The paper's parameters (its table 3), three set-ups, and the values that each parameter takes.

The paper prints its figures without the values on their axes; ours are chosen around its defaults. What it says in
numbers is in `PAPER`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

METHODS: Final = ("bf-paper", "bf", "bfp-paper", "bfp", "prefix-paper", "prefix", "summary")
P: Final = 0.001
"""Of a look-up by `summary`; the paper's p, which it has for each question."""
P_OF_A_QUESTION: Final = 1e-7
"""Of the others here. With 0.001, a search of 2,047 questions mostly ends by mistake, after about half of them: the
paper's counts are those of filters that do not err."""
TRIALS: Final = 10
SETUPS: Final = {
    "a": "any filter",
    "b": "none of wildcards alone",
    "c": "as b, and none that matches the published topic",
}
FIGURES: Final = {"a": 4, "b": 5, "c": 6}
PAPER: Final = {
    "c/n_lv=10/prefix-paper/probes": 29.7,
    "c/n_lv=10/bfp-paper/probes": 1570.0,
    "a/p_wc=0/bfp-paper/probes": 1.0,
    "b/p_wc=0/bfp-paper/probes": 1.0,
    "c/p_wc=0/bfp-paper/probes": 1.0,
}


class Parameters(NamedTuple):
    """Filters, levels of each and of the topic, share of filters with wildcards, first level that may have one."""

    n_t: int = 6000
    n_lv: int = 6
    p_wc: float = 0.5
    l_wc: int = 0


DEFAULT: Final = Parameters()
VALUES: Final[dict[str, tuple[float, ...]]] = {
    "n_t": (2000, 4000, 6000, 8000, 10_000),
    "n_lv": (2, 4, 6, 8, 10),
    "p_wc": (0, 0.25, 0.5, 0.75, 1),
    "l_wc": (0, 1, 2, 3, 4, 5),
}
QUICK: Final[dict[str, tuple[float, ...]]] = {"n_lv": (10,)}


class Point(NamedTuple):
    """One trial. `seed` is of the whole run."""

    setup: str
    parameter: str
    value: float
    trial: int
    seed: int

    @property
    def parameters(self) -> Parameters:
        values = DEFAULT._asdict() | {self.parameter: self.value}
        return Parameters(int(values["n_t"]), int(values["n_lv"]), float(values["p_wc"]), int(values["l_wc"]))

    @property
    def row(self) -> str:
        return f"{self.setup}/{self.parameter}={self.value:g}"


def points(quick: bool, trials: int, seed: int) -> list[Point]:
    values = QUICK if quick else VALUES
    return [
        Point(setup, parameter, value, trial, seed)
        for setup in SETUPS
        for parameter, several in values.items()
        for value in several
        for trial in range(trials)
    ]
