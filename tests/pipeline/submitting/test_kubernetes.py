from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.submitting.executor import command
from headwater.pipeline.submitting.kubernetes import Kubernetes, as_yaml, executor, files, spark_settings
from headwater.pipeline.submitting.plan import Plan, container_memory, defaults
from tests.pipeline.submitting.fake_kubernetes import fake_kubernetes

PLAN = Plan("s3://bucket/lake", config="trigger = 2.0\n\n[upkeep]\nfew_files = 8\n", options=("--url", "http://a:8080"))
PLAIN = Kubernetes("registry/headwater:1")
SECRET = Kubernetes("registry/headwater:1", "data", "headwater")


def documents(cluster: Kubernetes) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(files(PLAN, cluster)["kubernetes.yaml"]))


def only(kind: str, cluster: Kubernetes = PLAIN) -> dict[str, Any]:
    (found,) = (each for each in documents(cluster) if each["kind"] == kind)
    return found


@pytest.mark.parametrize("cluster", [PLAIN, SECRET])
def test_kubernetes_knows_all_that_is_said(cluster: Kubernetes) -> None:
    for document in [*documents(cluster), executor_of(cluster)]:
        kubernetes_validate.validate(document, "1.30", strict=True)


def executor_of(cluster: Kubernetes) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(only("ConfigMap", cluster)["data"]["executor.yaml"])
    assert found == executor(PLAN, cluster)
    return {**found, "metadata": {**found["metadata"], "name": "executor-1"}}  # which Spark gives


def test_settings_go_along_byte_by_byte() -> None:
    data = only("ConfigMap")["data"]
    assert data["pipeline.toml"] == PLAN.config
    assert data["spark-defaults.conf"] == defaults(spark_settings(PLAN, PLAIN))


def test_the_driver_is_headwater_pipeline_run() -> None:
    container = only("Deployment")["spec"]["template"]["spec"]["containers"][0]
    words = container["command"]
    assert words[:5] == ["headwater", "pipeline", "run", "--lake", "s3://bucket/lake"]
    assert words[5:9] == ["--config", "/etc/headwater/pipeline.toml", "--url", "http://a:8080"]
    assert container["resources"]["limits"]["memory"] == "2867Mi"


def test_executors_are_not_taken_for_the_driver() -> None:
    labels = executor(PLAN, PLAIN)["metadata"]["labels"]
    for selector in (only("Service")["spec"]["selector"], only("Deployment")["spec"]["selector"]["matchLabels"]):
        assert not selector.items() <= labels.items()
        assert selector.items() <= only("Deployment")["spec"]["template"]["metadata"]["labels"].items()


def test_a_secret_is_named_and_never_written() -> None:
    for container in (
        only("Deployment", SECRET)["spec"]["template"]["spec"]["containers"][0],
        executor_of(SECRET)["spec"]["containers"][0],
    ):
        assert container["envFrom"] == [{"secretRef": {"name": "headwater"}}]


def test_health_is_asked_where_it_can_be() -> None:
    """From outside only if figures have a token there."""
    inside = only("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "127.0.0.1:9464" in inside["command"] and "exec" in inside["livenessProbe"]
    outside = only("Deployment", SECRET)["spec"]["template"]["spec"]["containers"][0]
    assert "0.0.0.0:9464" in outside["command"] and outside["livenessProbe"]["httpGet"]["path"] == "/healthz"


keys = st.from_regex(r"[a-z]{1,4}[0-9]", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["two\nlines\n", "a\n\n", " b\nc\n"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(keys, inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, min_size=1, max_size=3))
def test_what_is_written_is_what_is_read(document: dict[str, Any]) -> None:
    assert yaml.safe_load(as_yaml(document)) == document


def test_an_executor_is_started_as_spark_describes_it() -> None:
    given = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2)}
    given |= {"SPARK_EXECUTOR_MEMORY": "2g", "SPARK_DRIVER_URL": "spark://d:7078", "SPARK_EXECUTOR_ID": "3"}
    given |= {"SPARK_EXECUTOR_CORES": "1", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.0.0.9"}
    given |= {"SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "exec-3"}
    words = command(given, "java", Path("/spark"))
    assert words[:5] == ["java", "-Dn=2", "-Dn=10", "-Xms2g", "-Xmx2g"]
    assert words[words.index("--podName") + 1] == "exec-3"
    del given["SPARK_DRIVER_URL"]
    with pytest.raises(KeyError):
        command(given, "java", Path("/spark"))


@pytest.mark.slow
def test_spark_makes_executors_of_what_was_written(tmp_path: Path) -> None:
    """Spark's own Kubernetes client against an API server whose pods are processes: a real executor answers."""
    template = tmp_path / "executor.yaml"
    template.write_text(as_yaml(executor(PLAN, PLAIN)), encoding="utf-8")
    plan = Plan("s3://bucket/lake", executors=1, executor_memory="1g", driver_memory="512m")
    with fake_kubernetes(tmp_path) as kubernetes:
        here = {
            "spark.master": kubernetes.master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.port": "0",
            "spark.driver.blockManager.port": "0",
            "spark.kubernetes.executor.podTemplateFile": str(template),
            "spark.kubernetes.executor.enableApiWatcher": "false",  # polling will do
            "spark.kubernetes.executor.apiPollingInterval": "2s",
        }
        settings = {**spark_settings(plan, PLAIN), **here}
        for name in ("caCertFile", "oauthTokenFile"):
            del settings[f"spark.kubernetes.authenticate.{name}"]
        (tmp_path / "spark-defaults.conf").write_text(defaults(settings), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.submitting.a_driver", kubernetes.master],
            env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stdout.splitlines()[-1:] == ["['1:True']"], done.stderr[-3000:]  # Java may have said something
        posted = [path for method, path in kubernetes.requests if method == "POST"]
    assert posted.count("/api/v1/namespaces/default/pods") == 1
    [pod] = kubernetes.created
    [container] = pod["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == f"{container_memory('1g')}Mi"
