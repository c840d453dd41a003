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
import sys
from pathlib import Path
from typing import Any, Final

from headwater_lab.chaos.campaign import KilledBroker
from headwater_lab.chaos.disks import BROKERS
from headwater_lab.chaos.lives import Serve
from headwater_lab.chaos.tail import sweep
from headwater_lab.kill_campaign import KillCampaign, parser

WHOLE: Final = 1000
"""Kills from which on a result is worth keeping."""
OURS: Final = "headwater broker --data-dir DIR --durability sync (forked for each life)"


def _arguments() -> argparse.Namespace:
    of = "of each broker; 0 lets it live for a while, -1: none"
    about = "Kill the broker, and check what it promised."
    options = parser("chaos", about, kills=2000, of=of, per_episode=25, on="data folder")
    options.add_argument("--cuts", type=int, default=200, help="starts with a log that is cut; -1: at every byte")
    options.add_argument("--broker", choices=BROKERS, action="append", help="sync and power-cuts, unless said; repeat")
    options.add_argument("--command", default="", help="another one instead, with {port}, {data} and {rest_port}")
    options.add_argument("--stored", action="store_true", help="that one has a delivery store, which is checked too")
    options.add_argument("--graceful", action="store_true", help="SIGTERM instead of SIGKILL, and no crash points")
    arguments = options.parse_args()
    if arguments.broker is None:
        arguments.broker = ["command"] if arguments.command else ["sync", "power-cuts"]
    return arguments


def _cut(folder: Path, serve: Serve, arguments: argparse.Namespace) -> dict[str, Any]:
    print("== log cut ==", flush=True)
    for sums in sweep(folder, serve, max(arguments.cuts, 0), arguments.seed):
        if sums.cuts % 100 == 0:
            print(f"{sums.cuts:6d} cuts of a log of {sums.size:,} bytes, {len(sums.failures)} failures", flush=True)
    for failure in sums.failures[:10]:
        print(f"    {failure}", flush=True)
    return {"bytes": sums.size, "cuts": sums.cuts, "failures": sums.failures[:100]}


def main() -> int:
    arguments = _arguments()
    campaign = KillCampaign("chaos", arguments.command or OURS, arguments, WHOLE)
    for name in arguments.broker if arguments.kills >= 0 else ():
        stored = arguments.stored or name.startswith("stored")
        killed = KilledBroker(name, BROKERS.get(name), arguments.command, arguments.graceful, stored)
        campaign.kill(killed.part())
    if arguments.cuts and not arguments.command:
        campaign.keep("log cut", _cut(campaign.folder / "tail", BROKERS[arguments.broker[0]], arguments))
    return campaign.end()


if __name__ == "__main__":
    sys.exit(main())
