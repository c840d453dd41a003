from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import yaml
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from headwater.metric import metrics_of
from headwater.pipeline.jobs.pipeline import Round
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.monitoring.endpoint import PipelineCollector
from headwater.pipeline.monitoring.figures import PREFIX, Gathering, PipelineFigures, StoreFigures, TableFigures
from headwater.pipeline.monitoring.lineage import LineageSeen
from tests.pipeline.jobs.a_lake import a_message, land

DOCS = Path(__file__).parents[3] / "docs"
KINDS = (PipelineFigures, StoreFigures, TableFigures, LineageSeen)


def exported() -> set[str]:
    """Names as Prometheus has them."""
    found = set()
    for kind in KINDS:
        for field, metric in metrics_of(kind).items():
            found.add(f"{PREFIX}_{metric.name or field}" + ("_total" if metric.is_counter else ""))
    return found


def page(gathering: Gathering) -> str:
    registry = CollectorRegistry()
    registry.register(PipelineCollector(lambda: gathering.seen))
    return generate_latest(registry).decode()


def test_rounds_add_up(tmp_path: Path) -> None:
    gathering = Gathering(Lake(tmp_path), clock=lambda: 1_000.0)
    final = datetime(2026, 1, 31, tzinfo=UTC)
    gathering.saw(Round(lag={"a": 5, "b": None}, lag_seconds=2.5, behind=7, final_until=final, did={"silver": 3}))
    gathering.saw(Round(lag={"a": 4, "b": None}, did={"silver": 2, "gold": 1}, failed={"latest": "no room"}))
    text = page(gathering)
    assert "headwater_pipeline_rounds_total 2.0" in text
    assert 'headwater_pipeline_step_rows_total{step="silver"} 5.0' in text
    assert 'headwater_pipeline_step_failures_total{step="latest"} 1.0' in text
    assert 'headwater_pipeline_lag_messages{store="a"} 4.0' in text
    assert 'store="b"' not in text  # it does not answer, so there is no number
    assert "headwater_pipeline_silent_stores 1.0" in text
    assert "\nheadwater_pipeline_lag_seconds" not in text  # not known in the last round
    assert "\nheadwater_pipeline_last_round_timestamp_seconds 1000.0" in text


def test_tables_are_seen(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, [a_message(1), a_message(2)])
    gathering = Gathering(lake)
    gathering.saw(Round())
    text = page(gathering)
    assert 'headwater_pipeline_table_rows{table="bronze"} 2.0' in text
    assert re.search(r'headwater_pipeline_table_bytes\{table="bronze"\} [1-9]', text)


def test_a_page_that_was_handed_out_does_not_change(tmp_path: Path) -> None:
    gathering = Gathering(Lake(tmp_path))
    gathering.saw(Round(did={"silver": 1}))
    before = gathering.seen
    gathering.saw(Round(did={"silver": 1}))
    assert before.pipeline.step_rows == {"silver": 1}
    assert gathering.seen.pipeline.step_rows == {"silver": 2}


def test_alerts_ask_for_what_is_exported() -> None:
    rules = yaml.safe_load((DOCS / "alerts" / "pipeline.yml").read_text(encoding="utf-8"))
    text = (DOCS / "pipeline-monitoring.md").read_text(encoding="utf-8")
    known = exported()
    for rule in rules["groups"][0]["rules"]:
        asked = set(re.findall(rf"{PREFIX}_\w+", rule["expr"]))
        assert asked and asked <= known, rule["alert"]
        assert rule["alert"] in text
        assert rule["annotations"]["summary"]


def test_the_page_names_all_figures() -> None:
    text = (DOCS / "pipeline-monitoring.md").read_text(encoding="utf-8")
    for name in exported():
        short = "_lineage_" if "_lineage_" in name else name.removeprefix(PREFIX)
        assert short in text, name


def test_every_figure_has_a_help_text() -> None:
    for kind in KINDS:
        told = metrics_of(kind)
        assert all(metric.help.endswith(".") for metric in told.values())
        assert set(told) == {each.name for each in fields(kind)} - {"name"}
