"""Options that benchmarks have in common."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path


def comparison_options(name: str, about: str | None, *, placeholder: str, quick: str) -> argparse.ArgumentParser:
    """The command line of a comparison with Mosquitto, `scripts/bench NAME`. `placeholder` is what the broker's command
    is given, such as `port`; `quick` says what `--quick` leaves."""
    ours = f"{shlex.quote(sys.executable)} -m headwater broker --{placeholder} {{{placeholder}}}"
    parser = argparse.ArgumentParser(
        prog=f"bench {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--command", default=ours, help=f"the broker, with {{{placeholder}}} (default: this headwater)")
    add("--self", action="store_true", dest="itself", help="a second Mosquitto in place of the broker")
    add("--quick", action="store_true", help=quick)
    add("--only", type=names, help="scenarios or cases, such as deep,lock/W2")
    add("--rounds", type=int, help="interleaved rounds of each case (default: mostly 5)")
    add("--seconds", type=float, help="measured time of a round (default: 2, quick: 0.5)")
    add("--mqtt", choices=("4", "5", "both"), default="both", help="4 is MQTT 3.1.1")
    output_options(parser)
    return parser


def figure_options(name: str, about: str | None, *, quick: str) -> argparse.ArgumentParser:
    """The command line of a `scripts/bench NAME` that ends with `store_figures.Figures.publish`."""
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    output_options(parser, "write name, paper, ours and unit of each figure", "; --quick never does")
    return parser


def output_options(
    parser: argparse.ArgumentParser, json: str = "write the results to this file", never: str = ""
) -> None:
    """Where a benchmark writes to."""
    parser.add_argument("--json", type=Path, help=json)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="the documentation's folder (default: docs)")
    parser.add_argument("--no-docs", action="store_true", help=f"do not write to the documentation{never}")


def names(text: str) -> list[str]:
    """Of a list with commas."""
    return [name for name in text.split(",") if name]
