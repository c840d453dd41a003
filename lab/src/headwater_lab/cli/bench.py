"""`headwater bench NAME`: the benchmarks and campaigns, each a module of the lab that can be run."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.cli.failure import fail

LAB: Final = Path(__file__).parent.parent
STARTED_BY_OTHERS: Final = ("pipeline-load", "pipeline-subscriber")
"""Processes of a benchmark, and none by themselves."""

bench = typer.Typer(name="bench", add_completion=False, rich_markup_mode=None)


def benchmarks() -> dict[str, str]:
    """Names, and in a line what each does."""
    found = {}
    for source in sorted([*LAB.glob("*.py"), *LAB.glob("*/__main__.py")]):
        if 'if __name__ == "__main__":' in source.read_text(encoding="utf-8"):
            is_package = source.name == "__main__.py"
            name = (source.parent.name if is_package else source.stem).replace("_", "-")
            described = source.with_name("__init__.py") if is_package else source
            if name not in STARTED_BY_OTHERS:
                found[name] = _first_line(described)
    return dict(sorted(found.items()))


def _first_line(source: Path) -> str:
    said = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return re.sub(r":* *`*scripts/bench.*", "", said.partition("\n")[0])


@bench.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def run(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; without it, all are listed.")] = None,
) -> None:
    """Run a benchmark or a campaign, such as `headwater bench broker --quick`; `bench NAME --help` has its options."""
    known = benchmarks()
    if name is None:
        print("\n".join(f"{each:<18} {what}" for each, what in known.items()))
        return
    if name.replace("_", "-") not in known:
        fail("bench", f"there is no benchmark {name}; there are {', '.join(known)}.")
    sys.argv = [f"bench {name}", *context.args]
    runpy.run_module(f"headwater_lab.{name.replace('-', '_')}", run_name="__main__", alter_sys=True)
