from __future__ import annotations

import os
from pathlib import Path

import yaml
from typer.testing import CliRunner

from headwater.cli.app import app

WORDS = ["pipeline", "submit", "kubernetes", "--lake", "s3://bucket/lake", "--image", "registry/headwater:1"]


def test_a_dry_run_shows_everything_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [*WORDS, "--dry-run", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "# ---- Dockerfile" in done.stdout and 'kind: "Deployment"' in done.stdout
    assert done.stdout.splitlines()[-1] == "kubectl apply --filename kubernetes.yaml"
    assert not out.exists()


def test_files_are_written(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text("trigger = 5.0\n", encoding="utf-8")
    done = CliRunner().invoke(app, [*WORDS, "--out", str(tmp_path / "out"), "--config", str(config)])
    assert done.exit_code == 0, done.output
    found = list(yaml.safe_load_all((tmp_path / "out" / "kubernetes.yaml").read_text(encoding="utf-8")))
    assert {each["kind"] for each in found} >= {"Deployment", "Service", "Role", "ConfigMap"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Dockerfile", "kubernetes.yaml"]


def test_scripts_can_be_run(tmp_path: Path) -> None:
    words = ["pipeline", "submit", "yarn", "--lake", "hdfs://cluster/lake", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert os.access(tmp_path / "submit.sh", os.X_OK)


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*WORDS, "--conf", "memory=2g", "--dry-run"])
    assert done.exit_code == 1
    assert "spark.NAME=VALUE" in done.stderr and "Traceback" not in done.stderr


def test_kubectl_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*WORDS, "--out", str(tmp_path), "--apply"], env={"PATH": str(tmp_path)})
    assert done.exit_code == 1
    assert "kubectl is not installed" in done.stderr
