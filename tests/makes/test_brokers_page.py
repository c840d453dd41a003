"""docs/brokers.md says what is seen of each make: its cells are looked at again here."""

from __future__ import annotations

from pathlib import Path

from headwater.wire.packets import V5
from headwater_lab.check_broker.contestants import one_headwater, running
from headwater_lab.makes import page
from headwater_lab.makes.fabric import OURS
from headwater_lab.makes.looks import ALL, Ground, see
from headwater_lab.makes.looks.between import CROSSINGS
from headwater_lab.makes.nodes import MAKES, Make
from headwater_lab.makes.seeing import seen_alone, seen_behind

PAGE = (Path(__file__).parent.parent.parent / "docs" / "brokers.md").read_text(encoding="utf-8")


RACES = {"some are lost": "yes"}
"""What a make does now and then, and what it does else: how often depends on what the machine has to do."""


def as_said(seen: dict[str, str], said: dict[str, str]) -> dict[str, str]:
    """What was seen, in the words of the page where both are the same."""
    return {row: said[row] if RACES.get(said[row]) == cell else cell for row, cell in seen.items()}


def test_what_is_seen_of_a_make_is_what_the_page_says(make: Make, tmp_path: Path) -> None:
    said = page.read(PAGE, page.ALONE)[make.name]
    assert as_said(seen_alone(make, tmp_path), said) == said


def test_behind_a_proxy_a_make_does_what_it_does_alone_but_for_what_the_page_says(make: Make, tmp_path: Path) -> None:
    if make.name == OURS:
        return  # it needs none
    seen = seen_behind(make, tmp_path)
    said = {**page.read(PAGE, page.ALONE)[make.name], **page.read(PAGE, page.BEHIND)[make.name]}
    assert as_said(seen, said) == {row: said[row] for row in seen}
    assert len(seen) >= len(CROSSINGS)


def test_the_page_has_each_make_and_each_look() -> None:
    columns = page.read(PAGE, page.ALONE)
    assert list(columns) == [make.name for make in MAKES]
    assert all(list(column) == [look.row for look in ALL] for column in columns.values())


def test_the_page_names_the_versions(make: Make) -> None:
    """Who looks at other versions may see something else: then the page is to be written again."""
    assert f"- **{make.name}** {page.version_of(make)}:" in PAGE


def test_a_table_is_read_as_it_was_written() -> None:
    columns = {"one": {ALL[0].row: "yes", ALL[1].row: "`a`"}, "two": {ALL[0].row: "–", ALL[1].row: ""}}
    begin, end = page.marks("t")
    written = page.write(f"before\n{begin}\n{end}\nafter\n", "t", columns)
    assert page.read(written, "t") == columns
    assert page.write(written, "t", columns) == written
    assert written.startswith("before\n") and written.endswith("\nafter\n")


def test_a_broker_that_does_otherwise_is_seen(tmp_path: Path) -> None:
    """The looks do not answer by themselves: where QoS 2 is switched off, what is seen differs in that."""
    command = one_headwater(tmp_path)
    command[0].words += ["--set", "max_qos=1"]
    with running(lambda _: command, tmp_path) as nodes:
        ground = Ground(nodes[0].port, nodes[0], V5)
        two_to_two, retained = (seen_row(ground, row) for row in (TWO_TO_TWO, RETAINED))
    assert two_to_two != "2"
    assert retained == "yes"


TWO_TO_TWO = "published with QoS 2, subscribed with 2: delivered with QoS"
RETAINED = "retained message, subscribed to its topic"


def seen_row(ground: Ground, row: str) -> str:
    return see(next(look for look in ALL if look.row == row), ground)
