"""Upkeep: fewer files, the same rows and notes; what nobody needs goes, and nothing else."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.pipeline.lake.compaction import TableFile, groups
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError, Log
from headwater.pipeline.lake.upkeep import DEAD, LakeUpkeep, TableUpkeep, clean_log, noted_deletions, tidy
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import LIVE
from tests.pipeline.lake.live_rows import live_rows
from tests.pipeline.lake.some_rows import contents, names, parquet_files, rows, span, written

HOUR = 3600.0
MEGABYTE = 1 << 20


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Log:
    """Of a table with positions only."""
    found = Log(tmp_path / "table", clock=clock)
    found.create(rows("s", 1, 1).schema)
    return found


def add(log: Log, position: int, **more: object) -> None:
    files = written(log.folder, rows("s", position, position, **more))
    log.commit(files, {"app": position}, job="job", positions={"s": position})


def filled(lake: Lake, commits: int) -> None:
    log = lake.log(LIVE)
    for number in range(1, commits + 1):
        files = write_files([live_rows("a", number, number)], str(log.folder), log.partition)
        log.commit(files, {"app": number}, job="job", positions={"a": number})


def age(path: Path, hours: float) -> None:
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))


# ---- which files become one ----------------------------------------------------------------------------------------

TODAY, YESTERDAY = date(2026, 1, 31), date(2026, 1, 30)


def some(count: int, size: int, day: date = TODAY, made: float = 0.0) -> list[TableFile]:
    return [TableFile(f"{day}/{size}/{number}", size, int(made * 1000), day) for number in range(count)]


def planned(files: list[TableFile], now: float = 0.0) -> list[list[int]]:
    """Sizes of the files of each group."""
    return [
        [each.size for each in group] for group in groups(files, UpkeepSettings(few_files=4, file_size=MEGABYTE), now)
    ]


def test_files_of_about_the_same_size_become_one() -> None:
    assert planned(some(3, 5_000)) == []
    assert planned(some(4, 5_000)) == [[5_000] * 4]
    assert planned(some(4, 5_000) + some(3, 100_000)) == [[5_000] * 4]  # the large ones are not rewritten for them
    assert planned(some(4, 600_000)) == []  # large enough


def test_no_group_is_larger_than_a_file_has_to_be() -> None:
    found = planned(some(20, 200_000))
    assert [len(each) for each in found] == [5, 5, 5, 5] and all(sum(each) <= MEGABYTE for each in found)


def test_what_is_left_of_a_day_becomes_one_when_nothing_is_added_any_more() -> None:
    files = some(2, 5_000, YESTERDAY) + some(1, 100_000, YESTERDAY) + some(1, 5_000, made=HOUR)
    assert planned(files, now=HOUR) == []
    assert planned(files, now=HOUR + 1) == [[100_000, 5_000, 5_000]]
    assert planned([each for each in files if each.partition == YESTERDAY], now=HOUR + 1) == []  # the newest day


def test_files_stay_few_and_bytes_are_rewritten_few_times() -> None:
    """A file a second for a day."""
    keeping, files, rewritten, most = UpkeepSettings(), [], 0, 0
    for second in range(20_000):
        files.append(TableFile(str(second), 8_000, second * 1000))
        if second % 60 == 0:
            for group in groups(files, keeping, second):
                size = sum(each.size for each in group)
                files = [each for each in files if each not in group]
                files.append(TableFile(f"m{second}-{group[0].path}", size, second * 1000))
                rewritten += size
            most = max(most, len(files))
    assert most <= 5 * keeping.few_files
    assert rewritten <= 5 * 20_000 * 8_000


# ---- small files ---------------------------------------------------------------------------------------------------


def test_many_files_become_few_and_nothing_else_changes(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake, 20)
    before = lake.log(LIVE).open().to_pyarrow_table().sort_by("position")
    done = tidy(lake, LIVE)
    assert (done.before, done.after) == (20, 1) and done.rewritten > 0
    assert lake.log(LIVE).open().to_pyarrow_table().sort_by("position") == before
    snapshot = lake.snapshot(LIVE)
    assert snapshot.positions("job") == {"a": 20} and snapshot.note("app") == 20
    assert snapshot.files_with({"a": (0, 1)}) == snapshot.files and snapshot.files_with({"a": (20, 30)}) == []


def test_few_files_are_left_as_they_are(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake, 15)
    assert [each.after for each in LakeUpkeep(lake).visit()] == [15]
    assert tidy(lake, LIVE, keep=1).after == 1  # who asks for it gets it


def test_columns_that_came_later_and_values_that_are_missing_survive(log: Log) -> None:
    add(log, 1)
    add(log, 2, x=1.5)
    add(log, 3, y="text")
    add(log, 4)
    before = contents(log.folder)
    assert TableUpkeep(log, "table", UpkeepSettings(few_files=2)).visit().after == 1
    assert contents(log.folder) == before
    [merged] = log.paths()
    assert log.look().files.column("null_count.position").to_pylist() == [0]
    assert (log.folder / merged).is_file()


def test_readers_of_changes_see_none(log: Log) -> None:
    for position in range(1, 5):
        add(log, position)
    TableUpkeep(log, "table", UpkeepSettings(few_files=2)).visit()
    last = (log.folder / "_delta_log" / f"{log.look().version:020d}.json").read_text()
    assert '"dataChange":true' not in last and last.count('"dataChange":false') == 5


def test_a_visit_rewrites_no_more_than_it_may_and_the_next_goes_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path, UpkeepSettings(few_files=2))
    filled(lake, 4)
    upkeep = TableUpkeep(lake.log(LIVE), LIVE.name, lake.keeping)
    assert upkeep.visit(most=100).after == 4
    assert upkeep.visit(most=MEGABYTE).after == 1


def test_who_changes_files_while_they_are_compacted_wins(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for position in range(1, 5):
        add(log, position)

    def delete(point: str, about: str = "") -> None:
        if point == "pipeline-before-commit":
            monkeypatch.undo()
            DeltaTable(str(log.folder)).delete("position = 2")

    monkeypatch.setattr("headwater.pipeline.lake.log.crash_point", delete)
    upkeep = TableUpkeep(log, "table", UpkeepSettings(few_files=2))
    assert upkeep.visit().rewritten == 0
    assert names(log.folder) == [("s", 1), ("s", 3), ("s", 4)]
    assert upkeep.visit().after == 1
    assert names(log.folder) == [("s", 1), ("s", 3), ("s", 4)]


def test_a_file_that_cannot_be_read_keeps_no_others_from_being_merged(tmp_path: Path) -> None:
    lake = Lake(tmp_path, UpkeepSettings(few_files=2))
    log = lake.log(LIVE)
    filled(lake, 2)
    (log.folder / log.paths()[0]).unlink()
    next_day = live_rows("a", 1_000_001, 1_000_002)
    for row in range(2):
        log.commit(write_files([next_day.slice(row, 1)], str(log.folder), log.partition), {})
    upkeep = TableUpkeep(log, LIVE.name, lake.keeping)
    assert (upkeep.visit().after, upkeep.visit().rewritten) == (3, 0)


# ---- old files -----------------------------------------------------------------------------------------------------


def test_replaced_files_stay_for_those_who_read_them_and_then_go(log: Log, clock: Clock) -> None:
    keeping = UpkeepSettings(few_files=2)
    for position in range(1, 5):
        add(log, position)
    upkeep = TableUpkeep(log, "table", keeping)
    assert upkeep.visit().removed == 0
    clock.now += keeping.keep_replaced - 1
    assert upkeep.visit().removed == 0 and len(parquet_files(log.folder)) == 5
    clock.now += 1
    assert upkeep.visit().removed == 4
    assert parquet_files(log.folder) == log.paths() and names(log.folder) == span("s", 1, 4)


def test_who_was_stopped_in_between_still_knows_what_was_replaced(log: Log, clock: Clock) -> None:
    for position in range(1, 5):
        add(log, position)
    TableUpkeep(log, "table", UpkeepSettings(few_files=2)).visit()
    clock.now += UpkeepSettings().keep_replaced
    assert TableUpkeep(Log(log.folder, clock=clock), "table", UpkeepSettings()).visit().removed == 4


def test_files_that_no_commit_names_go_when_they_are_old(tmp_path: Path) -> None:
    """A batch that is under way has such files, too."""
    lake = Lake(tmp_path)
    filled(lake, 2)
    folder = lake.path(LIVE)
    [young] = write_files([live_rows("a", 9, 9)], str(folder), LIVE.partition)
    [old] = write_files([live_rows("a", 8, 8)], str(folder), LIVE.partition)
    age(folder / young.path, DEAD / HOUR - 1)
    age(folder / old.path, DEAD / HOUR)
    done = tidy(lake, LIVE, keep=1)
    assert done.removed == 1
    assert not (folder / old.path).exists() and (folder / young.path).exists()
    assert lake.snapshot(LIVE).rows == 2 and lake.log(LIVE).stores() == ["a"]


# ---- logs ----------------------------------------------------------------------------------------------------------


def logged(log: Log) -> list[str]:
    return sorted(each.name for each in (log.folder / "_delta_log").iterdir())


def grown(log: Log, clock: Clock, commits: int, apart: float) -> None:
    """A commit every so many seconds, by the clock of the log."""
    for _ in range(commits):
        clock.now += apart
        before = set(logged(log))
        add(log, (log.batch("app") or 0) + 1)
        for name in set(logged(log)) - before:
            os.utime(log.folder / "_delta_log" / name, (clock.now, clock.now))


def test_commits_that_are_too_old_are_forgotten_and_the_rest_can_be_read(log: Log, clock: Clock) -> None:
    grown(log, clock, 100, 60.0)
    before = contents(log.folder)
    assert clean_log(log, keep=40 * 60.0) > 40
    commits = [int(name.split(".")[0]) for name in logged(log) if name.endswith(".json")]
    assert commits == list(range(commits[0], 101)) and 40 <= len(commits) <= 61  # 20 between two summaries
    assert clean_log(log, keep=40 * 60.0) == 0
    for each in (log, Log(log.folder)):
        assert each.positions("job") == {"s": 100} and each.look().version == 100
    assert contents(log.folder) == before
    assert DeltaTable(str(log.folder), version=70).version() == 70  # for those who read older versions
    grown(log, clock, 30, 60.0)
    assert names(log.folder) == span("s", 1, 130)


def test_summaries_do_not_pile_up(log: Log, clock: Clock) -> None:
    log.properties = UpkeepSettings(checkpoint_every=2).properties()
    log.configure()
    grown(log, clock, 99, 1.0)
    clean_log(log, keep=60.0)
    summaries = [name for name in logged(log) if "checkpoint.parquet" in name]
    assert len(summaries) <= 4 + 1 + 3
    for version in range(45, 101, 5):
        assert DeltaTable(str(log.folder), version=version).version() == version


def test_a_log_without_a_summary_forgets_nothing(log: Log, clock: Clock) -> None:
    grown(log, clock, 10, 60.0)
    clock.now += 1e6
    assert clean_log(log, keep=1.0) == 0
    assert len(logged(log)) == 11


def test_other_settings_reach_tables_that_are_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake, 1)
    lake.keep(UpkeepSettings(keep_log=7200.0, checkpoint_every=5))
    found = DeltaTable(str(lake.path(LIVE))).metadata().configuration
    assert found["delta.logRetentionDuration"] == "interval 7200 seconds"
    assert found["delta.checkpointInterval"] == "5"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep_loq": 1}, "unknown setting 'keep_loq' of .upkeep.; did you mean 'keep_log'"),
        ({"keep_log": 60}, "keep_replaced is 3600.0; it has to be from 0 to keep_log seconds"),
        ({"few_files": 1}, "few_files is 1; it has to be at least 2"),
        ({"file_size": 1.5}, "file_size is 1.5; it has to be a whole number"),
        ({"latest_rate": 0}, "latest_rate is 0"),
        ({"checkpoint_every": True}, "checkpoint_every is True"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        UpkeepSettings.from_settings(given)


def test_latest_waits_longer_the_larger_it_is() -> None:
    keeping = UpkeepSettings(latest_every=5.0, latest_rate=1000)
    assert (keeping.pause(0), keeping.pause(5_000), keeping.pause(60_000)) == (5.0, 5.0, 60.0)
    assert keeping.kept("latest") == keeping.keep_latest and keeping.kept("gold") == keeping.keep_replaced


# ---- who may -------------------------------------------------------------------------------------------------------


def test_one_pipeline_writes_at_a_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    refused = pytest.raises(
        LakeError, match=f"another pipeline writes .*: pipeline on .* \\(process {os.getpid()}\\) since"
    )
    with lake.writing(), refused, lake.writing():
        pass
    with lake.writing():
        pass


def test_a_table_that_others_gave_features_of_their_own_is_not_compacted(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for position in range(1, 5):
        add(log, position)
    monkeypatch.setattr(log, "features", lambda: ["deletionVectors"])
    assert TableUpkeep(log, "table", UpkeepSettings(few_files=2)).visit().after == 4


def test_batches_of_a_file_are_few_and_large(log: Log) -> None:
    """A row group for each small file would make it slow to read."""
    import pyarrow.parquet as pq

    for position in range(1, 31):
        add(log, position)
    TableUpkeep(log, "table", UpkeepSettings(few_files=2)).visit()
    [path] = log.paths()
    assert pq.ParquetFile(log.folder / path).num_row_groups == 1
    assert pa.table(pq.read_table(log.folder / path)).num_rows == 30


def test_a_deletion_by_somebody_else_is_noted_before_the_log_forgets_it(log: Log, clock: Clock) -> None:
    grown(log, clock, 20, 60.0)
    DeltaTable(str(log.folder)).delete("position = 2")
    grown(log, clock, 60, 60.0)
    for _ in range(2):  # once each
        assert TableUpkeep(log, "table", UpkeepSettings(keep_log=60.0, keep_replaced=60.0, keep_latest=60.0)).visit()
        assert noted_deletions(log) == {21}
    assert not (log.folder / "_delta_log" / f"{21:020d}.json").exists()
    assert len(names(log.folder)) == 79
