"""Options of formats: what is wrong is said, with what to write instead."""

from __future__ import annotations

import pytest

from headwater.pipeline.options import OptionError, Options

KNOWN = {"url": "", "maxRowsPerTrigger": "", "failOnDataLoss": ""}


def options(**given: str) -> Options:
    return Options("some", given, KNOWN)


def test_names_have_no_case_and_sparks_own_are_let_through() -> None:
    found = options(URL="x", maxrowspertrigger="5", checkpointLocation="/c", queryName="q", path="p")
    assert found.text("url") == "x"
    assert found.count("maxRowsPerTrigger") == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("maxRowPerTriger", "did you mean 'maxRowsPerTrigger'?"),
        ("FAILONLOSS", "did you mean 'failOnDataLoss'?"),
        ("zzz", "there are url, maxRowsPerTrigger, failOnDataLoss"),
    ],
)
def test_an_unknown_option_is_an_error_with_a_suggestion(name: str, said: str) -> None:
    with pytest.raises(OptionError) as error:
        options(**{name: "1"})
    assert str(error.value).endswith(said)
    assert f"unknown option {name!r} of format('some')" in str(error.value)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("YES", True), ("0", False), ("False", False)])
def test_flags(text: str, value: bool) -> None:
    assert options(failOnDataLoss=text).flag("failOnDataLoss", not value) is value
    assert options().flag("failOnDataLoss", value) is value


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", " 5", "many", "1e3"])
def test_a_count_is_a_whole_number_from_one_on(text: str) -> None:
    with pytest.raises(OptionError, match="'maxRowsPerTrigger' is a whole number from 1 on, not"):
        options(maxRowsPerTrigger=text).count("maxRowsPerTrigger")


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "soon", ""])
def test_seconds_are_a_number(text: str) -> None:
    with pytest.raises(OptionError, match="'url' is a number of seconds"):
        options(url=text).seconds("url", 1.0)
    assert options(url="0.5").seconds("url", 1.0) == 0.5


def test_a_flag_is_nothing_else() -> None:
    with pytest.raises(OptionError, match="'failOnDataLoss' is true or false, not 'maybe'"):
        options(failOnDataLoss="maybe").flag("failOnDataLoss", True)


def test_what_is_needed_is_asked_for_with_an_example() -> None:
    for given in ({}, {"url": ""}):
        with pytest.raises(OptionError, match="'url' is needed, such as http://there"):
            options(**given).needed("url", "http://there")
