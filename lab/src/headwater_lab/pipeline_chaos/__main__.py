"""python -m headwater_lab.pipeline_chaos [--kills N] [--seed N] [--few] [--cluster] [--iceberg] [--sink NAME]
    [--lake folder|s3] [--json FILE] [--keep FOLDER]

Kills the pipeline's processes again and again, at random moments and at every named crash point, and the nodes that it
reads, and checks that each stored message is in the tables exactly once and that each table is what a recomputation
makes of the one before. With --cluster, executors are processes of their own on a standalone cluster, and most of those
that are killed are such. With --lake s3, the lake is in an object store (`headwater_lab.kept_s3`), which is killed,
too. With --iceberg, tables are told to a catalog of Iceberg, and read from there as well.

A run of two hundred kills and more writes docs/results/pipeline-chaos[-cluster|-iceberg][-s3]-DATE.json. The exit
status is 1 if something was found; then the seed is said, and the folder is kept.
"""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
from typing import Final

from headwater_lab.kill_campaign import KillCampaign, parser
from headwater_lab.pipeline_chaos.aims import EVERYTHING, FEW, OF_THE_STORE, ON_A_CLUSTER, WITH_ICEBERG
from headwater_lab.pipeline_chaos.campaign import killed_pipeline
from headwater_lab.pipeline_chaos.episode import LOCAL
from headwater_lab.pipeline_chaos.guilty import HONEST, SINKS
from headwater_lab.pipeline_chaos.storage import FOLDER, LAKES, S3

WHOLE: Final = 200
"""Kills from which on a result of an honest sink is worth keeping."""


def _arguments() -> argparse.Namespace:
    about = "Kill the pipeline, and check its tables."
    options = parser("pipeline-chaos", about, kills=300, of="of its processes and nodes", per_episode=40, on="lake")
    options.add_argument("--nodes", type=int, default=2, help="that are read")
    options.add_argument("--aim", action="append", help="a place or a way to die; repeat; all, unless said")
    options.add_argument("--few", action="store_true", help="every point once, not for each table")
    options.add_argument("--cluster", action="store_true", help="a master and two workers, whose executors are killed")
    options.add_argument("--lake", choices=LAKES, default=FOLDER, help="where it is")
    options.add_argument("--iceberg", action="store_true", help="tables are Iceberg tables, too, and compared")
    options.add_argument("--sink", choices=(HONEST, *SINKS), default=HONEST, help="others are to be found guilty")
    return options.parse_args()


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # nodes and drivers are ended, too
    logging.getLogger("headwater.client").setLevel(logging.ERROR)  # nodes are away all the time
    kind = "-cluster" if arguments.cluster else "-iceberg" if arguments.iceberg else ""
    all_aims = {"-cluster": ON_A_CLUSTER, "-iceberg": WITH_ICEBERG}.get(kind, FEW if arguments.few else EVERYTHING)
    if arguments.lake == S3:
        all_aims = (*all_aims, *OF_THE_STORE * 4)
    name = f"pipeline-chaos{kind}" + ("" if arguments.lake == FOLDER else f"-{arguments.lake}")
    where = f"Pipeline on {'a cluster' if arguments.cluster else LOCAL}, started again by a supervisor"
    campaign = KillCampaign(name, where, arguments, WHOLE if arguments.sink == HONEST else math.inf)
    aims = tuple(arguments.aim or all_aims)
    part = killed_pipeline(arguments.sink, aims, arguments.nodes, arguments.cluster, arguments.lake, arguments.iceberg)
    campaign.kill(part, campaign.folder)
    return campaign.end()


if __name__ == "__main__":
    sys.exit(main())
