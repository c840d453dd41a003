"""A lake in an object store: commits, leases and upkeep against an S3 server, also while it is cut off or slow."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from headwater.objects import Place, PlaceError, open_place
from headwater.pipeline.lake.actions import commit_name
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.holder import Holder
from headwater.pipeline.lake.lease import Held, Lease, Leases, name
from headwater.pipeline.lake.log import LakeError, Log
from headwater.pipeline.lake.upkeep import TableUpkeep
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.light import answer
from headwater.pipeline.sql import Question
from headwater.pipeline.tables import BRONZE
from tests.objects.relay import Relay, relay
from tests.objects.s3_server import S3Server, s3_server
from tests.pipeline.lake.some_rows import messages

QUICK = {"max_retries": "3", "retry_timeout": "10s", "timeout": "3s"}
FOLDER = "tables/bronze"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def place(s3: S3Server) -> Place:
    return open_place(f"{s3.bucket()}/lake", s3.options())


@pytest.fixture
def log(place: Place) -> Log:
    return Log.of(place.below(FOLDER), BRONZE)


@pytest.fixture
def between(s3: S3Server) -> Iterator[Relay]:
    with relay(s3.port) as made:
        yield made


@pytest.fixture
def far(s3: S3Server, place: Place, log: Log, between: Relay) -> Log:
    """The same table, through the relay."""
    return Log(open_place(f"{place.url}/{FOLDER}", {**s3.options(between.port), **QUICK}), BRONZE.partition)


def written(log: Log, first: int, last: int) -> list[WrittenFile]:
    return write_files([messages("s", first, last)], log.place, log.partition)


def commit(log: Log, first: int, last: int) -> int:
    return log.commit(written(log, first, last), {}, job="bronze", positions={"s": last})


def positions(place: Place) -> list[int]:
    found: list[int] = dataset(Log(place.below(FOLDER))).to_table()["position"].to_pylist()
    return sorted(found)


def test_what_is_committed_can_be_read(place: Place, log: Log) -> None:
    assert [commit(log, 1, 10), commit(log, 11, 20)] == [1, 2]
    other = Log(place.below(FOLDER))
    assert (other.look().version, other.positions("bronze")) == (2, {"s": 20})
    assert positions(place) == list(range(1, 21))
    commit(log, 21, 30)
    assert other.look().version == 3
    rows = answer(Lake(place), Question("select count(*) as n, max(position) as last from bronze"))
    assert rows.to_pylist() == [{"n": 30, "last": 30}]
    theirs = DeltaTable(log.where, storage_options=dict(place.options)).to_pyarrow_table()
    assert sorted(theirs["position"].to_pylist()) == list(range(1, 31))


def test_of_two_writers_one_commits_a_version(place: Place, log: Log) -> None:
    """Both have seen the same, and would note the same: exactly one may."""
    logs = [Log(place.below(FOLDER), BRONZE.partition) for _ in range(4)]
    seen = [each.look() for each in logs]
    files = [written(each, 1, 10) for each in logs]

    def attempt(at: int) -> bool:
        try:
            logs[at].commit(files[at], {}, job="bronze", positions={"s": 10}, seen=seen[at])
        except LakeError as error:
            assert "somebody else has written" in str(error)
            return False
        return True

    with ThreadPoolExecutor(4) as all_at_once:
        assert sum(all_at_once.map(attempt, range(4))) == 1
    assert positions(place) == list(range(1, 11))


def test_a_commit_whose_answer_was_lost_was_made(place: Place, far: Log, between: Relay) -> None:
    commit(far, 1, 10)
    files = written(far, 11, 20)
    between.cut_answers = 1
    far.commit(files, {}, job="bronze", positions={"s": 20})
    assert between.cut_answers == 0
    assert positions(place) == list(range(1, 21))
    assert Log(place.below(FOLDER)).positions("bronze") == {"s": 20}


def test_merged_files_stay_if_the_answer_to_their_commit_was_lost(
    place: Place, far: Log, between: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = UpkeepSettings(few_files=2, keep_replaced=0, keep_log=0, keep_latest=0)
    for first in (1, 11, 21):
        commit(far, first, first + 9)
    upkeep = TableUpkeep(far, "bronze", keeping)
    rewrite = far.commit

    def with_a_lost_answer(*words: object, **more: object) -> int:
        between.cut_answers = 1
        return rewrite(*words, **more)

    monkeypatch.setattr(far, "commit", with_a_lost_answer)
    upkeep.visit()
    assert len(far.look().paths()) == 1
    assert positions(place) == list(range(1, 31))


def test_a_server_that_is_away_costs_time_and_no_rows(place: Place, far: Log, between: Relay) -> None:
    commit(far, 1, 10)
    files = written(far, 11, 20)
    between.hold()
    failed: list[Exception] = []

    def late() -> None:
        try:
            far.commit(files, {}, job="bronze", positions={"s": 20})
        except Exception as error:
            failed.append(error)

    waiting = threading.Thread(target=late)
    waiting.start()
    assert between.held.wait(30)
    between.cut()
    between.let_go()
    waiting.join()
    if failed:
        far.commit(files, {}, job="bronze", positions={"s": 20})
    assert positions(place) == list(range(1, 21))


def test_upkeep_of_a_table_merges_and_forgets(place: Place, log: Log) -> None:
    for first in range(1, 200, 10):
        commit(log, first, first + 9)
    log.clock = lambda: time.time() + 10
    keeping = replace(UpkeepSettings(), few_files=4, keep_replaced=0.0, keep_latest=0.0, keep_log=0.0)
    upkeep = TableUpkeep(log, "bronze", keeping)
    done = upkeep.visit()
    assert (done.before, done.after, done.removed) == (20, 1, 20)
    assert done.forgotten > 0
    assert positions(place) == list(range(1, 201))
    assert (
        len([each for each in place.list(FOLDER) if each.name.endswith(".parquet") and "_delta" not in each.name]) == 1
    )


# ---- who may -------------------------------------------------------------------------------------------------------


def lake(place: Place, expiry: float = 60.0) -> Lake:
    made = Lake(place)
    made.expiry = expiry
    return made


def elsewhere(place: Place, epoch: int) -> None:
    """The holder is on another machine, where nobody of here can look."""
    there = Holder.read(place.get(name(epoch)).data)
    assert there is not None
    place.put(name(epoch), replace(there, host="far-away", machine="another", process=77).written())


def test_the_second_is_told_who_has_it(place: Place) -> None:
    first = lake(place)
    with first.writing("pipeline run"):
        assert first.epoch == 1
        elsewhere(place, 1)
        with pytest.raises(Held, match=r"pipeline run on far-away \(process 77\) since 20.* UTC, seen \d s ago"):
            lake(place).check_free()
        with pytest.raises(Held), lake(place).writing():
            pass
        assert "far-away" in str(lake(place).writer())
    assert lake(place).writer() is None
    with lake(place).writing():
        assert Leases(place).epoch == 2


def test_of_many_that_start_one_gets_it(place: Place) -> None:
    def start(_: int) -> Lease | None:
        lease = Lease(place, "pipeline run")
        try:
            lease.take()
        except Held:
            return None
        return lease

    with ThreadPoolExecutor(6) as all_at_once:
        [got] = filter(None, all_at_once.map(start, range(6)))
    assert Leases(place).epoch == got.epoch
    got.give_back()


def test_a_dead_process_of_this_machine_is_not_waited_for(s3: S3Server, place: Place) -> None:
    words = "import os,sys,headwater.objects as o; from headwater.pipeline.lake.lease import Lease; "
    words += f"l=Lease(o.open_place({place.url!r}, {s3.options()!r}), 'x'); l.take(); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == -9
    assert Leases(place).epoch == 1
    with lake(place).writing():
        assert Leases(place).epoch == 2


def silent(place: Place, condition: Callable[[], bool]) -> None:
    end = threading.Event()
    while not condition():
        end.wait(0.05)


def test_who_was_paused_commits_nothing_beside_the_second(place: Place) -> None:
    """The first holds tables as they were, and a commit is on its way: neither gets in."""
    first, second = lake(place), lake(place, 1.0)
    locked = first.writing()
    locked.__enter__()
    log = first.log(BRONZE)
    commit(log, 1, 10)
    files, seen = written(log, 11, 20), log.look()
    assert first._lease is not None
    first._lease._ended.set()  # no sign of life any more
    elsewhere(place, 1)

    def is_free() -> bool:
        try:
            second.check_free()
        except Held:
            return False
        return True

    silent(place, is_free)
    with second.writing():
        with pytest.raises(LakeError, match=r"taken the lake over|somebody else has written"):
            log.commit(files, {}, job="bronze", positions={"s": 20}, seen=seen)
        fresh = Log(place.below(FOLDER), BRONZE.partition, epoch=1)
        with pytest.raises(LakeError, match="has taken the lake over"):
            fresh.commit(files, {}, job="bronze", positions={"s": 20})
        commit(second.log(BRONZE), 11, 20)
        first._lease.beat()
        with pytest.raises(Held, match="was taken over by pipeline on"):
            first.check()
        assert positions(place) == list(range(1, 21))
    locked.__exit__(None, None, None)
    assert Leases(place).is_over


def test_a_commit_on_its_way_does_not_pass_the_fence(place: Place, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made on a table without the fence, and reaches the store behind it."""
    old = Log(place.below(FOLDER), BRONZE.partition, epoch=1)
    old.fence()
    files = written(old, 1, 10)
    new = Log(place.below(FOLDER), BRONZE.partition, epoch=2)
    check = old.check_epoch

    def then_the_fence(table: DeltaTable) -> int:
        known = check(table)
        new.fence()
        return known

    monkeypatch.setattr(old, "check_epoch", then_the_fence)
    with pytest.raises(LakeError):
        old.commit(files, {}, job="bronze", positions={"s": 10})
    assert positions(place) == []


def test_a_sign_of_life_that_cannot_be_given_is_no_end(s3: S3Server, place: Place, between: Relay) -> None:
    far = open_place(place.url, {**s3.options(between.port), **QUICK, "max_retries": "0"})
    lease = Lease(far, "pipeline run")
    lease.take()
    between.close()
    with pytest.raises(PlaceError):
        lease.beat()
    lease.check()
    lease.give_back()


def test_a_store_that_takes_no_notice_of_conditions_has_no_lake(s3: S3Server, place: Place, between: Relay) -> None:
    far = open_place(place.url, {**s3.options(between.port), **QUICK})
    far.check_conditions("check")
    between.unheard = [b"if-none-match", b"if-match"]
    refused = pytest.raises(LakeError, match=r"also if the condition does not hold .* it cannot have a lake")
    with refused, lake(far).writing():
        pass
    assert Leases(place).epoch == 0


def test_a_table_that_another_engine_has_written_to_is_not_written(place: Place, log: Log) -> None:
    commit(log, 1, 10)
    theirs = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "Apache-Spark/4.0.1 Delta-Lake/4.0.0"}}
    place.put(f"{FOLDER}/{commit_name(2)}", json.dumps(theirs).encode())
    again = lake(place)
    refused = pytest.raises(LakeError, match="tables/bronze was written by Apache-Spark: in an object store one engine")
    with refused, again.writing():
        pass
    assert Leases(place).is_over
    again.other_engines = "allow"
    with again.writing():
        assert positions(place) == list(range(1, 11))
