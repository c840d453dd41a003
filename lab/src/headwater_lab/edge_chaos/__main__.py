"""python -m headwater_lab.edge_chaos [--quick] [--kills N] [--seed N] [--nodes N] [--network NAME] [--json FILE]

Kills, stops and cuts off nodes of an edge, at each named step of a move above all, while filters move from node to node
and devices publish; checks that what was acknowledged is in exactly one store, once, in order and readable, and that no
device had to reconnect.

The result file is a list of figures, {"name", "paper", "ours", "unit"}; all that is known beside them is in a file of
the same name that ends with `-facts.json`. A run of a hundred faults and more writes docs/results/edge-chaos-DATE.json.
The exit status is 1 if something was found; then the seed is said, and data folders, logs and the history are kept.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from typing import Final

from headwater_lab.cluster_chaos.episode import MESH, NETWORKS, Setup
from headwater_lab.cluster_chaos.nodes import DISKS
from headwater_lab.edge_chaos.abstraction import measure as become_two_tiers
from headwater_lab.edge_chaos.broken import BROKEN
from headwater_lab.edge_chaos.campaign import ChaoticEdge, EdgeCampaign
from headwater_lab.edge_chaos.episode import EdgeSetup, edge_faults
from headwater_lab.edge_chaos.faults import BY_NAME
from headwater_lab.edge_chaos.layout import LAYOUTS, RECEIVING
from headwater_lab.edge_chaos.receiving import measure
from headwater_lab.kill_campaign import parser

QUICK: Final = 20
QUICK_NODES: Final = 4
ABSTRACTION: Final = "abstraction"
WHOLE: Final = 100
"""Faults from which on a result is worth keeping."""
COMMAND: Final = "nodes of edges, durability sync (forked for each life)"


def _arguments() -> argparse.Namespace:
    about = "Move topics from node to node of an edge while its nodes are killed and cut off."
    options = parser("edge-chaos", about, kills=400, of="faults, kills among them", per_episode=15, on="edge")
    options.add_argument("--network", choices=NETWORKS, help="namespaces, which need root, ip and nft; else a relay")
    options.add_argument("--fault", choices=BY_NAME, action="append", help="all kinds, unless said; repeat")
    options.add_argument("--nodes", type=int, choices=LAYOUTS, default=0, help="3 to 5, unless said")
    options.add_argument("--rate", type=float, default=20.0, help="messages a second of each device")
    options.add_argument("--broken", choices=BROKEN, action="append", help="nodes that are to be found; repeat")
    options.add_argument("--pipeline", action="store_true", help="run the Spark pipeline over all of it")
    options.add_argument("--quick", action="store_true", help="20 faults, in less than two minutes")
    options.add_argument("--no-receiving", action="store_true", help="neither a receiving node's cost, nor abstraction")
    options.add_argument("--heartbeat", type=float, default=0.2, help="cluster.heartbeat")
    options.add_argument("--patience", type=float, default=1.0, help="cluster.patience")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.kills, arguments.per_episode, arguments.nodes = QUICK, QUICK, QUICK_NODES
    return arguments


def main() -> int:
    arguments = _arguments()
    campaign = EdgeCampaign("edge-chaos", COMMAND, arguments, math.inf if arguments.broken else WHOLE)
    has_namespaces = all(map(shutil.which, ("ip", "nft", "nsenter")))
    network = arguments.network or ("namespaces" if has_namespaces else "relay")
    only = tuple(BY_NAME[each] for each in arguments.fault or ())
    cluster = Setup(next(iter(DISKS)), network, MESH, arguments.heartbeat, arguments.patience, arguments.nodes)
    if not (arguments.no_receiving or arguments.broken):
        for part, measured in ((RECEIVING, measure), (ABSTRACTION, become_two_tiers)):
            place = campaign.folder / part
            place.mkdir(parents=True)
            campaign.keep(part, found := measured(place))
            if not found["failures"]:
                shutil.rmtree(place)
    for broken in arguments.broken or [""]:
        setup = EdgeSetup(cluster, broken, arguments.rate, arguments.pipeline)
        all_steps = not only and not broken
        edge = ChaoticEdge(setup, edge_faults(only), arguments.kills, all_steps)
        campaign.kill(edge.part())
    return campaign.end()


if __name__ == "__main__":
    sys.exit(main())
