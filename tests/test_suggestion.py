"""What is said of a name that is not known."""

from __future__ import annotations

import pytest

from headwater.suggestion import MOST_LISTED, check_known, closest, unknown


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("prot", ["host", "port"], "port"),
        ("FAILONLOSS", ["failOnDataLoss", "url"], "failOnDataLoss"),
        ("Port", ["host", "port"], "port"),
        ("zzzz", ["host", "port"], None),
        ("port", [], None),
    ],
)
def test_the_name_that_was_meant(name: str, known: list[str], meant: str | None) -> None:
    assert closest(name, known) == meant


def test_how_close_it_has_to_be() -> None:
    assert closest("pxrx", ["port"], 0.5) == "port"
    assert closest("pxrx", ["port"]) is None


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (["host", "port"], "unknown setting 'prot' of [admin]; did you mean 'port'?"),
        (["b", "a"], "unknown setting 'prot' of [admin]; there are b, a"),
        ([], "unknown setting 'prot' of [admin]; there are none"),
        ([f"n{number}" for number in range(MOST_LISTED + 1)], "unknown setting 'prot' of [admin]"),
    ],
)
def test_what_is_said(known: list[str], said: str) -> None:
    assert unknown("setting", "prot", known, " of [admin]") == said


def test_the_first_that_is_not_known() -> None:
    check_known("setting", ["b"], iter(["a", "b"]))
    with pytest.raises(ValueError, match=r"^unknown setting 'c'; there are a, b$"):
        check_known("setting", ["a", "c", "d"], iter(["a", "b"]))
