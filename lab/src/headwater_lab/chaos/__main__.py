"""python -m headwater_lab.chaos [--kills N] [--cuts N] [--seed N] [--broker NAME ...] [--json FILE] [--keep FOLDER]

Kills a broker with durability `sync` again and again, at random moments and at every named crash point, and checks
that nothing acknowledged was lost and no QoS 2 message delivered twice; with the disk as it is, then with one that
loses at each kill what was not synced. Then starts it on a log that ends too early, at many places. The store by itself
is killed by `headwater_lab.store_chaos`, the pipeline by `headwater_lab.pipeline_chaos`.

A run of a thousand kills and more writes docs/results/chaos-DATE.json. The exit status is 1 if something was found;
then the seed is said, and the data folder and the history are kept.
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
from headwater_lab.chaos.campaign import Plan, Totals, run_campaign
from headwater_lab.chaos.disks import BROKERS
from headwater_lab.chaos.episode import EpisodeOutcome
from headwater_lab.chaos.lives import Serve
from headwater_lab.chaos.tail import sweep

RESULTS: Final = Path("docs/results")
WHOLE: Final = 1000
"""Kills from which on a result is worth keeping."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Kill the broker, and check what it promised.")
    parser.add_argument("--kills", type=int, default=2000, help="of each broker; 0 lets it live for a while, -1: none")
    parser.add_argument("--cuts", type=int, default=200, help="starts with a log that is cut; -1: at every byte")
    parser.add_argument("--per-episode", type=int, default=25, help="kills on one data folder")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--keep", type=Path, help="where folders are made; those of failures stay")
    parser.add_argument("--broker", choices=BROKERS, action="append", help="sync and power-cuts, unless said; repeat")
    parser.add_argument("--command", default="", help="another one instead, with {port}, {data} and {rest_port}")
    parser.add_argument("--stored", action="store_true", help="that one has a delivery store, which is checked too")
    parser.add_argument("--graceful", action="store_true", help="SIGTERM instead of SIGKILL, and no crash points")
    arguments = parser.parse_args()
    if arguments.broker is None:
        arguments.broker = ["command"] if arguments.command else ["sync", "power-cuts"]
    return arguments


def _progress(totals: Totals, outcome: EpisodeOutcome) -> None:
    found = ", ".join(f"{count} {kind}" for kind, count in totals.violations.items()) or "nothing wrong"
    print(
        f"{totals.kills.total():6d} kills, {totals.counts['acknowledged']:8,d} acknowledged, "
        f"{totals.counts['received']:9,d} delivered, {found} ({totals.seconds:.0f} s)",
        flush=True,
    )
    for violation in outcome.violations[:10]:
        print(f"    seed {outcome.seed}: {violation}", flush=True)


def _kill(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    plan = Plan(
        arguments.kills,
        arguments.seed,
        folder / name,
        BROKERS.get(name),
        arguments.command,
        arguments.per_episode,
        arguments.graceful,
        arguments.stored or name.startswith("stored"),
    )
    print(f"== {name} ==", flush=True)
    return run_campaign(plan, _progress).as_dict()


def _cut(folder: Path, serve: Serve, arguments: argparse.Namespace) -> dict[str, Any]:
    print("== log cut ==", flush=True)
    for sums in sweep(folder / "tail", serve, max(arguments.cuts, 0), arguments.seed):
        if sums.cuts % 100 == 0:
            print(f"{sums.cuts:6d} cuts of a log of {sums.size:,} bytes, {len(sums.failures)} failures", flush=True)
    for failure in sums.failures[:10]:
        print(f"    {failure}", flush=True)
    return {"bytes": sums.size, "cuts": sums.cuts, "failures": sums.failures[:100]}


def _write(result: dict[str, Any], arguments: argparse.Namespace) -> None:
    path = arguments.json
    if path is None and arguments.kills >= WHOLE and RESULTS.is_dir():
        path = RESULTS / f"chaos-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
    if path is not None:
        command = arguments.command or "headwater broker --data-dir DIR --durability sync (forked for each life)"
        path.write_text(json.dumps({"machine": machine.describe(command), **result}, indent=2) + "\n")


def main() -> int:
    arguments = _arguments()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
    result: dict[str, Any] = {}
    if arguments.kills >= 0:
        result = {name: _kill(name, folder, arguments) for name in arguments.broker}
    if arguments.cuts and not arguments.command:
        result["log cut"] = _cut(folder, BROKERS[arguments.broker[0]], arguments)
    _write(result, arguments)
    print(json.dumps(result, indent=2))
    failed = any(part["failures"] for part in result.values())
    if failed:
        print(f"the folders of what failed are in {folder}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
