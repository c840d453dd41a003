"""python -m headwater_lab.store_chaos [--kills N] [--cuts N] [--seed N] [--store NAME ...] [--json FILE] [--keep DIR]

Kills the delivery store again and again, at random moments and at every named crash point, with and without a power
cut, and checks that nothing acknowledged is missing, that positions have no gaps, and that each has the bytes it had.
Then opens it with a log that ends too early, at many places. A node with publishers and subscribers is killed by
`python -m headwater_lab.chaos --broker stored`.

A run of a thousand kills and more writes docs/results/store-chaos-DATE.json. The exit status is 1 if something was
found; then the seed is said, and the folder is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from headwater_lab import machine
from headwater_lab.store_chaos.campaign import EpisodeOutcome, Totals, run_campaign
from headwater_lab.store_chaos.cuts import sweep
from headwater_lab.store_chaos.living import KINDS

RESULTS: Final = Path("docs/results")
WHOLE: Final = 1000
"""Kills from which on a result is worth keeping."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="store-chaos", description="Kill the delivery store, and check positions.")
    parser.add_argument("--kills", type=int, default=1000, help="of each store; 0: none")
    parser.add_argument("--cuts", type=int, default=500, help="openings with a log that is cut; -1: at every byte")
    parser.add_argument("--per-episode", type=int, default=25, help="kills on one folder")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--keep", type=Path, help="where folders are made; those of failures stay")
    parser.add_argument("--store", choices=KINDS, action="append", help="kills and power-cuts, unless said; repeat")
    return parser.parse_args()


def _progress(totals: Totals, outcome: EpisodeOutcome) -> None:
    found = ", ".join(f"{count} {kind}" for kind, count in totals.wrong.items()) or "nothing wrong"
    print(
        f"{totals.kills.total():6d} kills, {totals.counts['positions']:9,d} positions, {found} "
        f"({totals.seconds:.0f} s)",
        flush=True,
    )
    for text in outcome.wrong[:5]:
        print(f"    seed {outcome.seed}: {text[:2000]}", flush=True)


def main() -> int:
    arguments = _arguments()
    folder: Path = arguments.keep or Path(tempfile.mkdtemp(prefix="headwater-store-chaos-"))
    kinds = arguments.store or ["kills", "power-cuts"]
    result: dict[str, Any] = {}
    for kind in kinds if arguments.kills else ():
        print(f"== {kind} ==", flush=True)
        totals = run_campaign(kind, arguments.kills, arguments.seed, folder / kind, arguments.per_episode, _progress)
        result[kind] = totals.as_dict()
    if arguments.cuts:
        print("== log cut ==", flush=True)
        result["log cut"] = sweep(folder / "cuts", kinds[-1], max(arguments.cuts, 0), arguments.seed)
    path = arguments.json
    if path is None and arguments.kills >= WHOLE and RESULTS.is_dir():
        path = RESULTS / f"store-chaos-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
    if path is not None:
        path.write_text(
            json.dumps({"machine": machine.describe("DiskStore (forked for each life)"), **result}, indent=2)
        )
    print(json.dumps(result, indent=2))
    failed = any(part["failures"] for part in result.values())
    if failed:
        print(f"the folders of what failed are in {folder}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
