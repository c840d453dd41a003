"""A source that is pickled where the package is, and unpickled where Spark shows it to nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headwater.pipeline.shipping import make_zip
from tests.pipeline.bare_python import make_bare_python

PICKLE = """
import sys
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType
from headwater.pipeline.source import HeadwaterSource
shape = StructType([StructField("topic", StringType(), False)])
sys.stdout.buffer.write(cloudpickle.dumps(HeadwaterSource({"url": "http://127.0.0.1:1"}).streamReader(shape)))
"""
UNPICKLE = """
import pickle, sys
reader = pickle.loads(sys.stdin.buffer.read())
import headwater
print(type(reader).__name__, reader.settings.urls, reader.shape.schema.names, headwater.__file__, sep="|")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare_python(tmp_path_factory.mktemp("python"))


def run(python: Path, code: str, cwd: Path, path: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        [python, "-c", code], input=given, env=environment, cwd=cwd, capture_output=True, timeout=60, check=False
    )


def pickled(python: Path, archive: Path) -> bytes:
    done = run(python, PICKLE, archive.parent, archive)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_on_the_same_machine_the_archive_is_where_it_was(tmp_path: Path, python: Path) -> None:
    """As in the process that asks a stream for its offsets."""
    folder = tmp_path / "files" / "session"
    folder.mkdir(parents=True)
    archive = make_zip(folder)
    nothing = tmp_path / "files" / "streaming_job" / "headwater.zip"
    done = run(python, UNPICKLE, tmp_path, nothing, pickled(python, archive))
    assert done.stdout.decode().strip() == (
        f"StreamReader|('http://127.0.0.1:1',)|['topic']|{archive}/headwater/__init__.py"
    ), done.stderr.decode()


def test_on_another_machine_it_is_in_the_folder_of_the_session(tmp_path: Path, python: Path) -> None:
    """As in tasks of a stream over Spark Connect: Spark shows the folder above."""
    (tmp_path / "driver" / "session").mkdir(parents=True)
    (tmp_path / "executor").mkdir()
    source = pickled(python, make_zip(tmp_path / "driver" / "session"))
    shutil.move(tmp_path / "driver" / "session", tmp_path / "executor" / "session")
    done = run(python, UNPICKLE, tmp_path, tmp_path / "executor" / "headwater.zip", source)
    file = tmp_path / "executor" / "session" / "headwater.zip" / "headwater" / "__init__.py"
    assert done.stdout.decode().strip().endswith(f"|{file}"), done.stderr.decode()


def test_without_the_archive_there_is_no_package(tmp_path: Path, python: Path) -> None:
    (tmp_path / "session").mkdir()
    source = pickled(python, make_zip(tmp_path / "session"))
    shutil.rmtree(tmp_path / "session")
    done = run(python, UNPICKLE, tmp_path, tmp_path / "headwater.zip", source)
    assert "No module named 'headwater'" in done.stderr.decode()
