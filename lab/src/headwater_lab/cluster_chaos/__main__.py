"""python -m headwater_lab.cluster_chaos [--quick] [--kills N] [--seed N] [--network NAME] [--json FILE]

Kills, stops, cuts off and disturbs nodes of a cluster with durability `sync`, while clients move between them, and
checks that nothing acknowledged was lost, no QoS 2 message, will or message of a group delivered twice, no will is
missing, retained messages are the same everywhere and nothing is stuck; how long it takes until messages get from each
node to each other one again, and until a client that moves has its session.

A run of a hundred faults and more writes docs/results/cluster-chaos-DATE.json. The exit status is 1 if something was
found; then the seed is said, and data folders, logs and the history are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Final

from headwater_lab.cluster_chaos.campaign import ChaoticCluster
from headwater_lab.cluster_chaos.episode import MESH, NETWORKS, SESSION_LOST, SHAPES, Setup
from headwater_lab.cluster_chaos.faults import KINDS, DiskFull, Faults
from headwater_lab.cluster_chaos.nodes import DISKS
from headwater_lab.cluster_chaos.small_disk import can_mount
from headwater_lab.kill_campaign import KillCampaign, parser

QUICK: Final = 20
WHOLE: Final = 100
"""Faults from which on a result is worth keeping."""
COMMAND: Final = "nodes of a cluster, durability sync (forked for each life)"


def _arguments() -> argparse.Namespace:
    about = "Kill, stop and cut off nodes of a cluster, and check what it promised."
    options = parser("cluster-chaos", about, kills=1000, of="faults, kills among them", per_episode=15, on="cluster")
    options.add_argument("--disk", choices=DISKS, action="append", help="sync, unless said; repeat")
    options.add_argument("--network", choices=NETWORKS, help="namespaces, which need root, ip and nft; else a relay")
    options.add_argument("--shape", choices=SHAPES, default=MESH, help="of the cluster; not in a mesh, nodes relay")
    options.add_argument("--fault", choices=KINDS, action="append", help="all kinds, unless said; repeat")
    options.add_argument("--nodes", type=int, choices=range(2, 8), default=0, help="of a mesh; 3 to 7, unless said")
    options.add_argument("--session-lost", choices=SESSION_LOST, default="", help="drawn by episode, unless said")
    options.add_argument("--quick", action="store_true", help="20 faults, in less than two minutes")
    options.add_argument("--heartbeat", type=float, default=0.2, help="cluster.heartbeat")
    options.add_argument("--patience", type=float, default=1.0, help="cluster.patience")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.kills, arguments.per_episode, arguments.nodes = QUICK, QUICK, 3
    return arguments


def main() -> int:
    arguments = _arguments()
    campaign = KillCampaign("cluster-chaos", COMMAND, arguments, WHOLE)
    has_small_disks = can_mount()
    has_namespaces = has_small_disks and all(map(shutil.which, ("ip", "nft", "nsenter")))
    network = arguments.network or ("namespaces" if has_namespaces else "relay")
    if not has_small_disks:
        print("no disk will be full: that needs root")
        if DiskFull.kind in (arguments.fault or ()):
            return 2
    only = tuple(KINDS[each] for each in arguments.fault or ())
    for disk in arguments.disk or ["sync"]:
        setup = Setup(
            *(disk, network, arguments.shape, arguments.heartbeat, arguments.patience, arguments.nodes),
            small_disks=has_small_disks,
            session_lost=arguments.session_lost,
        )
        campaign.kill(ChaoticCluster(setup, Faults(arguments.shape == MESH, has_small_disks, only)).part())
    return campaign.end()


if __name__ == "__main__":
    sys.exit(main())
