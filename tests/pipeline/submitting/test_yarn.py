from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from headwater.pipeline.masters import NoMaster, check_master
from headwater.pipeline.submitting.plan import Plan
from headwater.pipeline.submitting.yarn import Yarn, files

PLAN = Plan("hdfs://cluster/lake", options=("--url", "http://a b:8080"), spark={"spark.yarn.queue": "night"})
LISTENING = """\
#!/bin/sh
for word; do printf '%s\\n' "$word"; done
"""


def submitted(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What submit.sh calls, word by word."""
    for name, text in files(PLAN, Yarn("night", ("AWS_SECRET_ACCESS_KEY",))).items():
        (folder / name).write_text(text, encoding="utf-8")
    spark = folder / "bin" / "spark-submit"
    spark.parent.mkdir()
    spark.write_text(LISTENING, encoding="utf-8")
    spark.chmod(0o755)
    path = {"PATH": f"{spark.parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["bash", str(folder / "submit.sh")]
    return subprocess.run(words, env={**path, **environment}, capture_output=True, text=True, check=False)


def test_what_is_submitted(tmp_path: Path) -> None:
    words = submitted(tmp_path, AWS_SECRET_ACCESS_KEY="two words").stdout.splitlines()
    assert words[words.index("--archives") + 1] == "environment.tar.gz#environment"
    assert "spark.yarn.appMasterEnv.AWS_SECRET_ACCESS_KEY=two words" in words
    assert "spark.executorEnv.AWS_SECRET_ACCESS_KEY=two words" in words
    assert words[-1] == "driver.py"
    for word in words[words.index("--files") + 1 : words.index("--files") + 2]:
        assert (tmp_path / word).exists()


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    done = submitted(tmp_path)
    assert done.returncode != 0 and "AWS_SECRET_ACCESS_KEY: has to be in the environment" in done.stderr
    assert done.stdout == ""


def test_the_driver_is_headwater_pipeline_run() -> None:
    tree = ast.parse(files(PLAN, Yarn())["driver.py"])
    (words,) = (ast.literal_eval(each.value) for each in tree.body if isinstance(each, ast.Assign))
    assert words[:5] == ["headwater", "pipeline", "run", "--lake", "hdfs://cluster/lake"]
    assert words[5:] == ["--config", "pipeline.toml", "--url", "http://a b:8080", "--master", "yarn"]


def test_settings_of_the_user_go_before_ours() -> None:
    text = files(PLAN, Yarn("day"))["spark-defaults.conf"]
    assert [line.split()[1] for line in text.splitlines() if line.startswith("spark.yarn.queue")] == ["night"]


@pytest.mark.parametrize("name", ["make-environment.sh", "submit.sh"])
def test_scripts_are_whole(name: str) -> None:
    text = files(PLAN, Yarn("day", ("A", "B")))[name]
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_where_yarn_is_has_to_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(NoMaster, match="HADOOP_CONF_DIR is not set"):
        check_master("yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    check_master("yarn")
