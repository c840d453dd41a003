from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.pipeline.lake.folder import Lake
from tests.pipeline.jobs.a_lake import a_message, land

SETTINGS = """\
[iceberg]
catalog = {{type = "sql", uri = "sqlite:///{0}/catalog.db", warehouse = "file://{0}"}}
tables = ["bronze"]
"""


def test_tables_are_registered_by_command(tmp_path: Path) -> None:
    land(Lake(tmp_path / "lake"), [a_message(1)])
    config = tmp_path / "pipeline.toml"
    config.write_text(SETTINGS.format(tmp_path), encoding="utf-8")
    words = ["pipeline", "register", "--lake", str(tmp_path / "lake"), "--config", str(config)]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (0, "iceberg: bronze\n"), done.output
    assert CliRunner().invoke(app, words).stdout == "iceberg: nothing new\n"


def test_without_a_catalog_it_says_what_to_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["pipeline", "register", "--lake", str(tmp_path)])
    assert done.exit_code == 1 and "[[catalog]]" in done.stderr
