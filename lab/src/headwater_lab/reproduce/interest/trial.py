"""One trial: filters and a published topic as the paper makes them, and what each method asks to find it.

A level is ten random characters. A filter with wildcards is made of a topic: of all its forms with wildcards one is
chosen, each as likely as any other. Without `#`, any of the m levels that may have wildcards has `+`, but not none: 2^m
− 1 forms. With `#` at one of those levels, any of the i before it has `+`: Σ 2^i, which is 2^m − 1 again.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from headwater.interest import sizing
from headwater.interest.bf import Bf
from headwater.interest.bfp import Bfp
from headwater.interest.bloom import filled_bloom
from headwater.interest.elements import Elements
from headwater.interest.filter import Interest
from headwater.interest.prefix import MARK, PAPERS_MARK, Prefix, prefixes
from headwater.interest.summary import Summary
from headwater.routing.topics import levels_match
from headwater_lab.reproduce.interest.plan import METHODS, P_OF_A_QUESTION, P, Parameters, Point

POSITIONS: Final = 7
"""Of a string in a Bloom filter: with the 23 that would make it smallest, filling it takes thrice as long."""
NAME: Final = 10
"""Characters."""
NO_BOUND: Final = 1 << 40


class Measured(NamedTuple):
    """Questions, in the order of METHODS; and whether it said that the topic is wanted, and whether it is."""

    probes: tuple[int, ...]
    found: tuple[bool, ...]
    is_wanted: bool


def run_point(point: Point) -> Measured:
    random = Random(f"{point.seed} {point.row} {point.trial}")
    parameters = point.parameters
    topic = names(parameters.n_lv, random)
    filters = [one_filter(point.setup, parameters, topic, random) for _ in range(parameters.n_t)]
    probes, found = [], []
    for method in _filled(filters, parameters):
        found.append(method.may_match("/".join(topic)))
        probes.append(method.probes)
    return Measured(tuple(probes), tuple(found), any(levels_match(each, topic) for each in filters))


def names(count: int, random: Random) -> list[str]:
    text = random.randbytes(count * NAME // 2).hex()
    return [text[at : at + NAME] for at in range(0, count * NAME, NAME)]


def one_filter(setup: str, parameters: Parameters, topic: list[str], random: Random) -> list[str]:
    while True:
        levels = names(parameters.n_lv, random)
        if random.random() < parameters.p_wc:
            levels = with_wildcards(levels, parameters.l_wc, random)
        if setup != "a" and not any(level not in ("+", "#") for level in levels):
            continue
        if setup == "c" and levels_match(levels, topic):
            continue
        return levels


def with_wildcards(levels: list[str], first: int, random: Random) -> list[str]:
    """One of all forms; the levels themselves, if none of them may have a wildcard."""
    free = len(levels) - first
    half = (1 << free) - 1
    if half <= 0:
        return levels
    chosen = random.randrange(2 * half)
    if chosen < half:
        return _plus(levels, first, chosen + 1)
    rest = chosen - half + 1  # from 2^i on, there are 2^i forms with `#` behind i levels that may have `+`
    before = rest.bit_length() - 1
    return [*_plus(levels[: first + before], first, rest - (1 << before)), "#"]


def _plus(levels: list[str], first: int, which: int) -> list[str]:
    return ["+" if at >= first and which >> (at - first) & 1 else level for at, level in enumerate(levels)]


def _size(strings: int) -> sizing.Bloom:
    return sizing.bloom(strings, P_OF_A_QUESTION, POSITIONS)


def _filled(filters: list[list[str]], parameters: Parameters) -> list[Interest]:
    """In the order of METHODS. Methods that store the same strings share a Bloom filter; the two that differ in their
    end mark do so, too, as no name here has either."""
    texts = ["/".join(levels) for levels in filters]
    whole = filled_bloom((text.encode() for text in texts), _size(parameters.n_t), 1)
    patterns = [Bfp(is_mended=False), Bfp()]
    for method in patterns:
        for levels in filters:
            method.added(levels)
    made: list[Interest] = [Elements(method, whole, NO_BOUND) for method in (Bf(is_mended=False), Bf(), *patterns)]
    strings = set()
    for levels, text in zip(filters, texts, strict=True):
        strings.update(prefixes(levels, MARK))
        strings.add(text + PAPERS_MARK)
    by_prefix = filled_bloom((each.encode() for each in strings), _size(len(strings)), 1)
    made += [Elements(method, by_prefix, NO_BOUND) for method in (Prefix(is_mended=False), Prefix())]
    summary = Summary(p=P, seed=1, most_probes=NO_BOUND)
    summary.add_all(texts)
    made.append(summary)
    assert len(made) == len(METHODS)
    return made
