"""The campaign's command line; see the package."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import headwater_lab.peering_simulation as package
from headwater.peering.methods.names import NAMES
from headwater_lab.peering_simulation.checking import findings
from headwater_lab.peering_simulation.world import MIXED, World

METHODS = (*NAMES, MIXED)


class Outcome(NamedTuple):
    seed: int
    method: str
    publications: int
    deliveries: int
    owed: int
    frames: int
    found: list[str]


def simulate(seed: int, method: str) -> Outcome:
    world = World(seed, method)
    world.run()
    deliveries = sum(len(each.got) for each in world.subscribers)
    owed = sum(len(each.owed) for each in world.publications)
    return Outcome(seed, method, len(world.publications), deliveries, owed, world.frames_sent, findings(world))


def outcome_of(case: tuple[int, str]) -> Outcome:
    try:
        return simulate(*case)
    except Exception as error:  # a seed that fails is a finding, and no end of the campaign
        return Outcome(*case, 0, 0, 0, 0, [f"{type(error).__name__}: {error}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench peering-simulation", description=package.__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many, divided among the methods (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--method", choices=METHODS, help="this method alone")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stop", action="store_true", help="at the first seed that shows something")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args(arguments)
    methods = (options.method,) if options.method else METHODS
    cases = [(options.first + at // len(methods), methods[at % len(methods)]) for at in range(options.seeds)]
    began = time.perf_counter()
    outcomes = []
    with ProcessPoolExecutor(options.processes) as pool:
        found_by = pool.map(outcome_of, cases, chunksize=16) if options.processes > 1 else map(outcome_of, cases)
        for outcome in found_by:
            outcomes.append(outcome)
            for found in outcome.found[:3]:
                print(f"seed {outcome.seed} {outcome.method}: {found}", flush=True)
            if outcome.found and options.stop:
                break
    failed = sum(bool(each.found) for each in outcomes)
    totals = {name: sum(getattr(each, name) for each in outcomes) for name in Outcome._fields[2:6]}
    seconds = time.perf_counter() - began
    print(f"{len(outcomes):,} seeds in {seconds:.1f} s: {failed} failed; {totals}")
    if options.json:
        said = {"seeds": len(outcomes), "failed": failed, "seconds": seconds, **totals}
        options.json.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
