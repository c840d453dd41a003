from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.submitting.plan import Plan, PlanError, container_memory, defaults


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lake": "/data/lake"}, "object storage"),
        ({"name": "Lake_1"}, "--name"),
        ({"name": "x" * 60}, "42 at most"),
        ({"executor_memory": "2gb"}, "--executor-memory"),
        ({"driver_memory": "0g"}, "--driver-memory"),
        ({"executors": 0}, "--executors"),
        ({"spark": {"driver.memory": "1g"}}, "--conf"),
        ({"spark": {"spark.x": "a\nspark.y b"}}, "on one line"),
        ({"config": "trigger ="}, "no TOML"),
        ({"config": 'token = "t"'}, "secret, token"),
        ({"config": '[monitoring]\nmetrics_token = "t"'}, r"secret, \[monitoring\] metrics_token"),
        ({"config": '[[catalog]]\nkind = "unity"\ntoken = "t"'}, r"secret, \[catalog\] token"),
        ({"config": '[iceberg.catalog]\n"s3.secret-access-key" = "k"'}, r"secret, \[iceberg.catalog\] s3.secret"),
        ({"config": '[iceberg]\ncatalog = {type = "rest", credential = "id:secret"}'}, "iceberg.catalog. credential"),
    ],
)
def test_what_cannot_be_submitted(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Plan(**{"lake": "s3://bucket/lake", **given})


def test_spark_settings_are_read_as_they_were_written() -> None:
    given = {"spark.app.name": "a", "spark.executor.extraJavaOptions": "-Da=b -Dc=d"}
    read = dict(line.split(None, 1) for line in defaults(given).splitlines())
    assert read == given


def test_a_container_has_room_for_python() -> None:
    assert container_memory("512m") == 512 + 384
    assert container_memory("1g") == 1024 + 409
    assert container_memory("10g") == 10_240 + 4_096
