"""The whole campaign of shared subscriptions: `scripts/bench shared`, about half an hour.

Runs shared-cost, shared-fleet and topologies one after the other; each writes its result file and its part of
docs/performance.md, unless the run is a quick one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from headwater_lab import campaign, shared_cost, shared_fleet, topologies

BENCHMARKS: Final = (shared_cost.BENCHMARK, shared_fleet.BENCHMARK, topologies.BENCHMARK)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the worst exit status."""
    parser = argparse.ArgumentParser(
        prog="bench shared", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a slice of each, two minutes in all")
    parser.add_argument("--docs", default="docs", help="the documentation's folder (default: docs)")
    options = parser.parse_args(arguments)
    passed = ["--docs", options.docs, *(["--quick"] if options.quick else [])]
    return max(campaign.main(benchmark, passed) for benchmark in BENCHMARKS)


if __name__ == "__main__":
    sys.exit(main())
