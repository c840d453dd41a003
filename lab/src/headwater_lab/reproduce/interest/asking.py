"""A broker that asks a filter about every PUBLISH, in a process of its own (figure 7).

    python -m headwater_lab.reproduce.interest.asking --port N [--queries K | --method NAME --levels N]

With `--queries`, as the paper had it: a Bloom filter of 10,000 strings of 100 characters is asked K times, for strings
that are not in it. With `--method`, what the method does for a topic that nobody wants, among 6,000 filters of so many
levels. Without either, nothing is asked, and packets take the hot path.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Any, Final

from headwater.interest import sizing
from headwater.interest.bloom import filled_bloom
from headwater.interest.methods import make
from headwater.interest.summary import Summary
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.selector import run
from headwater_lab.reproduce.interest.plan import P, Parameters
from headwater_lab.reproduce.interest.trial import names, one_filter

STORED: Final = 10_000
LENGTH: Final = 100
TOPICS: Final = 20_000
"""More than answers are remembered."""

Asking = Callable[..., Any]


def asking_the_filter(queries: int) -> Asking:
    random = Random(1)
    stored = [f"{random.getrandbits(4 * LENGTH):0{LENGTH}x}".encode() for _ in range(STORED)]
    bloom = filled_bloom(stored, sizing.bloom(STORED, P), 1)
    strange = itertools.cycle(f"{random.getrandbits(4 * LENGTH):0{LENGTH}x}".encode() for _ in range(STORED))

    def publish(message: Any, client: Any) -> None:
        for _ in range(queries):
            bloom.has(next(strange))

    return publish


def asking_by(method: str, levels: int) -> Asking:
    random = Random(1)
    parameters = Parameters(n_lv=levels)
    topics = itertools.cycle(["/".join(names(levels, random)) for _ in range(TOPICS)])
    strings = parameters.n_t * (levels if method == "prefix" else 1)
    filter = Summary(p=P, seed=1) if method == "summary" else make(method, strings, P, 1, most_probes=1 << 40)
    for _ in range(parameters.n_t):
        filter.add("/".join(one_filter("b", parameters, [], random)))
    filter.may_match("x")

    def publish(message: Any, client: Any) -> None:
        filter.may_match(next(topics))

    return publish


async def serve(port: int, asking: Asking | None) -> None:
    hooks = Hooks()
    if asking is not None:
        hooks.add("publish", asking)
    async with Broker(Config(port=port), hooks=hooks):
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--method")
    parser.add_argument("--levels", type=int, default=6)
    chosen = parser.parse_args()
    asking = None
    if chosen.method is not None:
        asking = asking_by(chosen.method, chosen.levels)
    elif chosen.queries is not None:
        asking = asking_the_filter(chosen.queries)
    run(serve(chosen.port, asking))


if __name__ == "__main__":
    main()
