"""Tables are looked after while a pipeline runs, by the pipeline itself."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.jobs.pipeline import Pipeline
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BRONZE
from tests.pipeline.jobs.a_lake import a_message, land, pipeline, settings

NO_SPARK = cast(SparkSession, None)


def test_a_pipeline_that_runs_looks_after_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    for position in range(1, 40):
        land(lake, [a_message(position)])
    monkeypatch.setattr(Pipeline, "_steps", lambda *_: iter(()))
    for tidy_every, files, done in ((3600.0, 39, None), (1e-6, 1, 38)):
        with pipeline(NO_SPARK, lake, settings(tidy_every=tidy_every)) as running:
            assert running.round({}).did.get("tidy") == done
        bronze = lake.snapshot(BRONZE)
        assert (len(bronze.files), bronze.rows) == (files, 39)
