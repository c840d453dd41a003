"""Looks at each make and writes what it saw into docs/brokers.md: PYTHONPATH=src:lab/src python scripts/brokers_page.py

It starts all brokers on loopback at once, which takes about a minute. `scripts/makes` installs those that Debian
does not have.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from headwater_lab.makes import page
from headwater_lab.makes.fabric import OURS
from headwater_lab.makes.nodes import MAKES
from headwater_lab.makes.seeing import seen_alone, seen_behind

PAGE = Path(__file__).parent.parent / "docs" / "brokers.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("makes", nargs="*", help="only these; what the page has of the others stays")
    only = parser.parse_args().makes
    text = PAGE.read_text(encoding="utf-8")
    alone, behind = page.read(text, page.ALONE), page.read(text, page.BEHIND)
    with TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        chosen = [make for make in MAKES if not only or make.name in only]
        looking = {make.name: threads.submit(seen_alone, make, Path(folder) / make.name) for make in chosen}
        alone |= {name: each.result() for name, each in looking.items()}
        looking = {
            make.name: threads.submit(seen_behind, make, Path(folder) / f"{make.name}-behind")
            for make in chosen
            if make.name != OURS
        }
        differing = page.differing(alone, {name: each.result() for name, each in looking.items()})
        behind |= {name: dict(column) for name, column in differing.items()}
    text = page.write(text, page.ALONE, {make.name: alone[make.name] for make in MAKES if make.name in alone})
    text = page.write(text, page.BEHIND, {make.name: behind[make.name] for make in MAKES if make.name in behind})
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
