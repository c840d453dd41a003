"""`[spark]` of a pipeline's settings."""

from __future__ import annotations

import os
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.jobs.settings import SettingsError, make_settings
from headwater.pipeline.session import LOCAL_IP, _pages_on_loopback
from headwater.pipeline.spark_settings import OURS, read_spark

NAMES = st.lists(st.text("abcXYZ", min_size=1, max_size=5), min_size=1, max_size=4).map(".".join)


@given(st.dictionaries(NAMES, st.text(max_size=5) | st.integers() | st.booleans()))
def test_names_in_quotes_are_sparks(given_: dict[str, str | int | bool]) -> None:
    found = read_spark(given_)
    assert found.keys() == {f"spark.{name}" for name in given_}
    assert all(
        found[f"spark.{name}"] == (str(v).lower() if v is True or v is False else str(v)) for name, v in given_.items()
    )


def test_a_table_of_toml() -> None:
    text = """
        [spark]
        driver.memory = "4g"
        ui.enabled = true
        sql.shuffle.partitions = 8
        "speculation" = true
        "speculation.interval" = "1s"
    """
    assert make_settings(tomllib.loads(text)).spark == {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.speculation": "true",
        "spark.speculation.interval": "1s",
    }
    assert make_settings({}).spark == {}


def test_what_tables_rely_on_cannot_be_set() -> None:
    with pytest.raises(ValueError, match=r"sql.session.timeZone is 'CET'; it cannot be set: times .* in UTC"):
        make_settings({"spark": {"sql": {"session": {"timeZone": "CET"}}}})
    for name in OURS:
        with pytest.raises(ValueError, match="cannot be set"):
            read_spark({name.removeprefix("spark."): "x"})
    with pytest.raises(ValueError, match="has to be a text or a number"):
        make_settings({"spark": {"jars": ["a", "b"]}})
    with pytest.raises(SettingsError, match="did you mean 'spark'"):
        make_settings({"sparks": {}})


@pytest.mark.parametrize(
    ("master", "before", "meanwhile"),
    [("local[2]", None, "127.0.0.1"), ("local[2]", "10.0.0.7", "10.0.0.7"), ("spark://host:7077", None, None)],
)
def test_pages_of_a_local_spark_are_on_loopback(
    master: str, before: str | None, meanwhile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java looks into its environment when it starts; a Spark on a cluster that comes later must not."""
    monkeypatch.delenv(LOCAL_IP, raising=False)
    if before is not None:
        monkeypatch.setenv(LOCAL_IP, before)
    with _pages_on_loopback(master):
        assert os.environ.get(LOCAL_IP) == meanwhile
    assert os.environ.get(LOCAL_IP) == before
