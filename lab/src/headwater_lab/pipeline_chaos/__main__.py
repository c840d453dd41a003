"""python -m headwater_lab.pipeline_chaos [--kills N] [--seed N] [--few] [--cluster] [--sink NAME] [--json FILE]
    [--keep FOLDER]

Kills the pipeline's processes again and again, at random moments and at every named crash point, and the nodes that it
reads, and checks that each stored message is in the tables exactly once and that each table is what a recomputation
makes of the one before. With --cluster, executors are processes of their own on a standalone cluster, and most of those
that are killed are such.

A run of two hundred kills and more writes docs/results/pipeline-chaos[-cluster]-DATE.json. The exit status is 1 if
something was found; then the seed is said, and the folder is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from headwater_lab import machine
from headwater_lab.pipeline_chaos.aims import EVERYTHING, FEW, ON_A_CLUSTER
from headwater_lab.pipeline_chaos.campaign import Plan, Totals, run_campaign
from headwater_lab.pipeline_chaos.episode import LOCAL, EpisodeOutcome
from headwater_lab.pipeline_chaos.guilty import HONEST, SINKS

RESULTS: Final = Path("docs/results")
WHOLE: Final = 200
"""Kills from which on a result is worth keeping."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pipeline-chaos", description="Kill the pipeline, and check its tables.")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--per-episode", type=int, default=40, help="kills on one lake")
    parser.add_argument("--nodes", type=int, default=2, help="that are read")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode")
    parser.add_argument("--aim", action="append", help="a place or a way to die; repeat; all, unless said")
    parser.add_argument("--few", action="store_true", help="every point once, not for each table")
    parser.add_argument("--cluster", action="store_true", help="a master and two workers, whose executors are killed")
    parser.add_argument("--sink", choices=(HONEST, *SINKS), default=HONEST, help="others are to be found guilty")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--keep", type=Path, help="where folders are made; those of failures stay")
    return parser.parse_args()


def _progress(totals: Totals, outcome: EpisodeOutcome) -> None:
    found = ", ".join(f"{count} {kind}" for kind, count in totals.wrong.items()) or "nothing wrong"
    print(
        f"{totals.kills.total():6d} kills, {totals.counts['rows of bronze']:9,d} messages, {found} "
        f"({totals.seconds:.0f} s)",
        flush=True,
    )
    for text in outcome.wrong[:5]:
        print(f"    seed {outcome.seed}: {text[:3000]}", flush=True)


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # nodes and drivers are ended, too
    logging.getLogger("headwater.client").setLevel(logging.ERROR)  # nodes are away all the time
    folder: Path = arguments.keep or Path(tempfile.mkdtemp(prefix="headwater-pipeline-chaos-"))
    all_aims = ON_A_CLUSTER if arguments.cluster else FEW if arguments.few else EVERYTHING
    plan = Plan(
        *(arguments.kills, arguments.seed, folder, arguments.per_episode, arguments.nodes, arguments.sink),
        aims=tuple(arguments.aim or all_aims),
        on_cluster=arguments.cluster,
    )
    place = "cluster-" if arguments.cluster else ""
    path: Path | None = arguments.json
    if path is None and arguments.kills >= WHOLE and arguments.sink == HONEST and RESULTS.is_dir():
        path = RESULTS / f"pipeline-chaos-{place}{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
    described = machine.describe(
        f"Pipeline on {'a cluster' if arguments.cluster else LOCAL}, started again by a supervisor"
    )

    def progress(totals: Totals, outcome: EpisodeOutcome) -> None:
        """What is known is kept, should it end here."""
        _progress(totals, outcome)
        if path is not None:
            path.write_text(json.dumps({"machine": described, arguments.sink: totals.as_dict()}, indent=2) + "\n")

    result = run_campaign(plan, progress).as_dict()
    print(json.dumps(result, indent=2))
    if result["failures"]:
        print(f"the folders of what failed are in {folder}", file=sys.stderr)
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
