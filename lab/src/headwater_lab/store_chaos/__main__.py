"""python -m headwater_lab.store_chaos [--kills N] [--cuts N] [--seed N] [--store NAME ...] [--json FILE] [--keep DIR]

Kills the delivery store again and again, at random moments and at every named crash point, with and without a power
cut, and checks that nothing acknowledged is missing, that positions have no gaps, and that each has the bytes it had.
Then opens it with a log that ends too early, at many places. A node with publishers and subscribers is killed by
`python -m headwater_lab.chaos --broker stored`.

A run of a thousand kills and more writes docs/results/store-chaos-DATE.json. The exit status is 1 if something was
found; then the seed is said, and the folder is kept.
"""

from __future__ import annotations

import sys
from typing import Final

from headwater_lab.kill_campaign import KillCampaign, parser
from headwater_lab.store_chaos.campaign import killed_store
from headwater_lab.store_chaos.cuts import sweep
from headwater_lab.store_chaos.living import KINDS

WHOLE: Final = 1000
"""Kills from which on a result is worth keeping."""


def main() -> int:
    about = "Kill the delivery store, and check positions."
    options = parser("store-chaos", about, kills=1000, of="of each store; 0: none", per_episode=25, on="folder")
    options.add_argument("--cuts", type=int, default=500, help="openings with a log that is cut; -1: at every byte")
    options.add_argument("--store", choices=KINDS, action="append", help="kills and power-cuts, unless said; repeat")
    arguments = options.parse_args()
    kinds = arguments.store or ["kills", "power-cuts"]
    campaign = KillCampaign("store-chaos", "DiskStore (forked for each life)", arguments, WHOLE)
    for kind in kinds if arguments.kills else ():
        campaign.kill(killed_store(kind))
    if arguments.cuts:
        print("== log cut ==", flush=True)
        campaign.keep("log cut", sweep(campaign.folder / "cuts", kinds[-1], max(arguments.cuts, 0), arguments.seed))
    return campaign.end()


if __name__ == "__main__":
    sys.exit(main())
