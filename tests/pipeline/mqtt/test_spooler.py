"""The spooler, in its own process, with a real broker: what comes, what is acknowledged and when, and who may ask."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trustme
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headwater.client import Properties
from headwater.fleet.node import RunningNode
from headwater.pipeline.mqtt.remote import Address, Remote, SpoolerError, records
from headwater.pipeline.mqtt.source import SpoolLost
from headwater.pipeline.mqtt.supervisor import SpoolerFailed, SpoolerSupervisor, send_away
from tests.brokers import both_brokers, free_port, running
from tests.pipeline.mqtt.queries import Query, Row, is_alive, numbered, options, publish, query, wait_until


def payloads(rows: list[Row]) -> list[bytes]:
    return [row["payload"] for row in rows]


@both_brokers
def test_rows_are_what_was_published(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", qos="2") as reading:
        reading.plan()
        before = time.time()
        publish(broker, [b"", b"\x00\xff", b"x" * 100_000], "plant/7/temperature")
        told = Properties(content_type="text/plain", user_properties=[("unit", "K"), ("unit", "°C")])
        publish(broker, [b"warm"], "plant/\u00fc", 2, told)
        rows = reading.run(4)
    assert payloads(rows) == [b"", b"\x00\xff", b"x" * 100_000, b"warm"]
    assert [row["topic"] for row in rows] == ["plant/7/temperature"] * 3 + ["plant/\u00fc"]
    assert [row["qos"] for row in rows] == [1, 1, 1, 2]
    assert [row["retain"] for row in rows] == [False] * 4
    assert [row["properties"] for row in rows[:3]] == [None] * 3
    assert rows[3]["properties"] == '{"content_type":"text/plain","user":[["unit","K"],["unit","°C"]]}'
    assert all(before - 1 <= row["received"].timestamp() <= time.time() + 1 for row in rows)


@both_brokers
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_acknowledged_before_spark_has_committed_it(broker: int, tmp_path: Path, qos: int) -> None:
    """The spool is thrown away: what the broker then sends again is what it holds as unacknowledged."""
    folder = tmp_path / f"spool{qos}"
    with query(broker, folder, qos=str(qos), failOnSpoolLoss="false") as reading:
        reading.plan()
        publish(broker, numbered(0, 300), qos=qos)
        wait_until(lambda: reading.status["next"] == 300, "all came")
        assert reading.plan(ReadMaxRows(100))
        reading.commit()
        assert reading.plan()  # which commits the first 100 in the source
        assert payloads(reading.read()) == numbered(100, 300)  # read, and not committed
        wait_until(lambda: reading.status["unacknowledged"] == 200, "the broker has heard of the first 100")
        reading.reader.stop()
        reading.kill_spooler()
        shutil.rmtree(folder)
        reading.restart()
        reading.planned = None
        reading.start = {}
        assert sorted(payloads(reading.run(200)), key=int) == numbered(100, 300)
        publish(broker, [b"last"], qos=qos)
        assert payloads(reading.run(1)) == [b"last"]


@both_brokers
def test_what_a_killed_spooler_had_is_there_again_once_and_the_same(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        publish(broker, numbered(0, 500))
        wait_until(lambda: reading.status["next"] == 500, "all came")
        reading.plan()
        rows = reading.read()
        reading.kill_spooler()
        assert reading.read() == rows
        wait_until(lambda: reading.status["is_subscribed"], "connected again")
        reading.commit()
        publish(broker, [b"last"])
        assert payloads(reading.run(1)) == [b"last"]
        reading.end_spooler()
        reading.restart()
        publish(broker, [b"really last"])
        assert payloads(reading.run(1)) == [b"really last"]  # so the broker has the acknowledgements of all others


def test_executors_that_read_go_on_with_the_next_spooler(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        publish(broker, [b"%d" % number + bytes(5000) for number in range(500)])
        wait_until(lambda: reading.status["next"] == 500, "all came")
        address = reading.reader._spooler().address
        found = []
        for number, arrival in enumerate(records(address, 0, 500)):
            found.append(arrival.payload[:-5000])
            if number == 10:
                reading.kill_spooler()
        assert found == numbered(0, 500)
        assert reading.reader._spooler().address == address


@both_brokers
def test_a_full_spool_waits_for_spark_and_nothing_is_lost(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", spoolMessages="40") as reading:
        reading.plan()
        publish(broker, numbered(0, 300))
        wait_until(lambda: bool(reading.status["is_full"]), "it is full")
        assert reading.status["next"] == 40
        rows: list[Row] = []
        while len(rows) < 300:
            assert reading.plan(), f"nothing came behind {len(rows)} rows"
            batch = reading.read()
            assert len(batch) <= 40
            rows += batch
            reading.commit()
            reading.settle()
            wait_until(lambda: reading.status["next"] > len(rows) or len(rows) == 300, "it goes on")  # noqa: B023
    assert payloads(rows) == numbered(0, 300)


def test_a_spool_that_is_full_of_bytes_waits_as_well_also_with_qos_0(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", spoolBytes="10k", qos="0") as reading:
        reading.plan()
        publish(broker, [b"%d" % number + bytes(1000) for number in range(30)], qos=0)
        wait_until(lambda: bool(reading.status["is_full"]), "it is full")
        assert reading.status["next"] == 10
        rows = reading.run(30)
    assert [row["payload"][:-1000] for row in rows] == numbered(0, 30)


def test_a_window_smaller_than_a_batch_does_not_stop_the_query(broker: int, tmp_path: Path) -> None:
    """Spark commits in the source only when there is a further batch; the broker sends none before."""
    with query(broker, tmp_path / "spool", receiveMaximum="10") as reading:
        reading.plan()
        publish(broker, numbered(0, 95))
        assert payloads(reading.run(95)) == numbered(0, 95)


def test_groups_get_everything_and_members_share_it(broker: int, tmp_path: Path) -> None:
    with (
        query(broker, tmp_path / "a", group="one") as first,
        query(broker, tmp_path / "b", group="one", connections="2") as second,
        query(broker, tmp_path / "c", group="two") as other,
    ):
        for each in (first, second, other):
            each.plan()
        publish(broker, numbered(0, 300))
        wait_until(lambda: first.status["next"] + second.status["next"] == 300, "the group has it")
        shared = [first.run(first.status["next"]), second.run(second.status["next"])]
        assert second.status["connected"] == 2
        assert all(shared)
        assert sorted(payloads(shared[0] + shared[1]), key=int) == numbered(0, 300)
        assert payloads(other.run(300)) == numbered(0, 300)


def test_an_ordinary_subscription_gets_retained_messages(broker: int, tmp_path: Path) -> None:
    from headwater.client import SyncClient

    with SyncClient("127.0.0.1", broker) as client:
        client.publish("plant/kept", b"state", qos=1, retain=True)
    with query(broker, tmp_path / "spool", shared="false", topics="plant/kept") as reading:
        [row] = reading.run(1)
        assert (row["payload"], row["retain"]) == (b"state", True)
        reading.end_spooler()
        reading.restart()
        reading.settle()
        publish(broker, [b"news"], "plant/kept")
        assert payloads(reading.run(1)) == [b"news"]  # not the old state once more
    with SyncClient("127.0.0.1", broker) as client:
        client.publish("plant/kept", b"", qos=1, retain=True)


def test_positions_of_a_store_are_columns(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node, query(node.port, tmp_path / "spool", positions="true") as reading:
        reading.plan()
        publish(node.port, numbered(0, 20), properties=Properties(user_properties=[("unit", "K")]))
        rows = reading.run(20)
    assert len({row["store"] for row in rows}) == 1 and rows[0]["store"]
    positions = [row["position"] for row in rows]
    assert positions == list(range(positions[0], positions[0] + 20))
    assert rows[0]["properties"] == '{"user":[["unit","K"]]}'


def test_limits_of_a_batch_are_kept(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", maxRowsPerTrigger="7", rowsPerPartition="3") as reading:
        reading.plan()
        publish(broker, numbered(0, 20))
        wait_until(lambda: reading.status["next"] == 20, "all came")
        reader, start = reading.reader, reading.start
        assert reader.getDefaultReadLimit() == ReadMaxRows(7)
        end = reader.latestOffset(start, ReadMaxRows(7))
        assert end["next"] == 7
        assert [(each.first, each.next) for each in reader.partitions(start, end)] == [(0, 3), (3, 6), (6, 7)]  # type: ignore[attr-defined]
        assert reader.latestOffset(start, ReadAllAvailable())["next"] == 20
        assert reader.latestOffset(start, ReadMinRows(21)) == start
        assert reader.latestOffset(start, ReadMinRows(20))["next"] == 20
        assert list(reader.partitions(end, end)) == []
        assert reader.reportLatestOffset() == {**start, "next": 20}


def test_available_now_means_what_was_there(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", settle="0.3") as reading:
        reading.plan()
        reading.end_spooler()
        publish(broker, numbered(0, 50))
        reading.restart()
        reading.reader.prepareForTriggerAvailableNow()
        for first, next in ((0, 50), (50, 60)):
            assert reading.plan()
            publish(broker, numbered(next, next + 10))
            assert payloads(reading.read()) == numbered(first, next)
            reading.commit()
        assert not reading.plan()


def test_available_now_takes_a_backlog_larger_than_the_window(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", settle="0.3", receiveMaximum="20", maxRowsPerTrigger="15") as reading:
        reading.plan()
        reading.end_spooler()
        publish(broker, numbered(0, 150))
        reading.restart()
        reading.reader.prepareForTriggerAvailableNow()
        rows: list[Row] = []
        while reading.plan():
            rows += reading.read()
            reading.commit()
        assert payloads(rows) == numbered(0, 150)


def test_a_query_that_comes_back_finds_its_spooler_and_a_stranger_is_refused(
    broker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.pipeline.mqtt.supervisor.LEASE", 0.3)
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        pid = reading.pid
        refused = pytest.raises(SpoolerFailed, match="another query uses this spool")
        with contextlib.closing(SpoolerSupervisor(reading.options)) as stranger, refused:
            stranger.advance()
        reading.restart()
        began = time.monotonic()
        reading.settle()
        assert reading.pid == pid and time.monotonic() - began < 3  # the former one's connection is closed


def test_other_options_make_another_spooler_which_unsubscribes_from_what_is_not_wanted(
    broker: int, tmp_path: Path
) -> None:
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        pid = reading.pid
        reading.options = options(broker, tmp_path / "spool", topics="other/#")
        reading.restart()
        reading.settle()
        wait_until(lambda: reading.status["is_subscribed"], "subscribed")
        assert reading.pid != pid
        publish(broker, [b"unwanted"])
        publish(broker, [b"wanted"], "other/topic")
        assert payloads(reading.run(1)) == [b"wanted"]


def test_a_spooler_that_nobody_asks_leaves_and_its_messages_stay(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool", linger="0.5") as reading:
        reading.plan()
        publish(broker, numbered(0, 10))
        wait_until(lambda: reading.status["next"] == 10, "all came")
        pid = reading.pid
        time.sleep(1.0)  # the watcher asks: this is about time itself
        assert is_alive(pid)
        reading.reader.stop()
        wait_until(lambda: not is_alive(pid), "it has left")
        publish(broker, numbered(10, 20))
        reading.restart()
        assert payloads(reading.run(20)) == numbered(0, 20)


def test_there_is_one_spooler_for_a_folder(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        command = [sys.executable, "-m", "headwater.pipeline.mqtt.spooler"]
        done = subprocess.run(command, input=reading.options.as_json().encode(), timeout=20, check=False)
        assert done.returncode == 75
        assert reading.status["is_subscribed"]


def test_without_the_token_nothing_is_told(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        address = reading.reader._spooler().address
        stranger = Address(address.host, address.port, "guess")
        with contextlib.closing(Remote(stranger)) as remote, pytest.raises(SpoolerError, match="token"):
            remote.post("/leave")
        with pytest.raises(SpoolerError, match="token"):
            list(records(stranger, 0, 1))
        assert address.token not in repr(address)
        assert (tmp_path / "spool" / "address.json").stat().st_mode & 0o077 == 0


def test_a_checkpoint_of_another_spool_is_refused_unless_told(broker: int, tmp_path: Path) -> None:
    with query(broker, tmp_path / "spool") as reading:
        reading.plan()
        publish(broker, numbered(0, 10))
        wait_until(reading.plan, "a batch")
        with pytest.raises(SpoolLost, match="failOnSpoolLoss=false"):
            reading.reader.latestOffset({"spool": "strange", "next": 5}, ReadAllAvailable())
        with pytest.raises(SpoolLost, match="failOnSpoolLoss=false"):
            reading.reader.partitions({"spool": "strange", "next": 5}, {"spool": "strange", "next": 7})
        with pytest.raises(SpoolLost, match="ends at 10"):
            reading.reader.latestOffset({**reading.start, "next": 11}, ReadAllAvailable())
        reading.options = options(broker, tmp_path / "spool", failOnSpoolLoss="false")
        reading.restart()
        lost = {"spool": "strange", "next": 5}
        assert list(reading.reader.partitions(lost, {**lost, "next": 7})) == []
        end = reading.reader.latestOffset(lost, ReadAllAvailable())
        reading.planned = lost, end
        assert payloads(reading.read()) == numbered(0, 10)


def test_a_broker_that_comes_back_without_sessions_is_a_new_session(tmp_path: Path) -> None:
    with running("headwater", tmp_path) as port:
        pass
    folder = tmp_path / "spool"
    command = [sys.executable, "-m", "headwater", "broker", "--port", str(port)]
    with query(port, folder) as reading:
        for _ in range(2):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                try:
                    wait_until(lambda: reading.status["connected"] == 1, "connected")
                    wait_until(lambda: reading.status["is_subscribed"], "subscribed")
                    wait_until(lambda: _can_publish(port, reading), "the subscription is there")
                finally:
                    process.kill()
        progress = (folder / "progress.json").read_text()
        assert '"sessions": {"0": 2}' in progress


def _can_publish(port: int, reading: Query) -> bool:
    """After a reconnect the client subscribes again by itself, at a moment of its own."""
    before = reading.status["next"]
    publish(port, [b"a life"])
    until = time.monotonic() + 0.3
    while time.monotonic() < until and reading.status["next"] == before:
        time.sleep(0.02)
    return bool(reading.status["next"] > before)


def test_a_broker_that_refuses_is_an_error_of_the_query(tmp_path: Path) -> None:
    with (
        running("mosquitto", tmp_path, "allow_anonymous false") as port,
        query(port, tmp_path / "spool", username="me", password="wrong") as reading,
        pytest.raises(SpoolerFailed, match=r"(?i)not authorized"),
    ):
        wait_until(reading.plan, "it fails")


def test_a_spooler_can_be_sent_away(broker: int, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    send_away(folder)
    with query(broker, folder, linger="60") as reading:
        reading.plan()
        pid = reading.pid
        reading.reader.stop()
        send_away(folder)
        wait_until(lambda: not is_alive(pid), "it has left")
        send_away(folder)


def test_over_tls_both_sides_show_certificates(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("lake@example.org")
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    for name, issued in (("server", server), ("client", client)):
        issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    secure = f"cafile {ca}\ncertfile {tmp_path / 'server.pem'}\nkeyfile {tmp_path / 'server.pem'}\n"
    plain = free_port()
    settings = f"{secure}require_certificate true\nlistener {plain} 127.0.0.1\nallow_anonymous true"
    with running("mosquitto", tmp_path, settings) as port:
        broker = {"broker": f"mqtts://localhost:{port}", "cert": str(tmp_path / "client.pem")}
        with query(port, tmp_path / "spool", **broker, ca=str(ca)) as reading:
            reading.plan()
            publish(plain, numbered(0, 30))
            assert [row["payload"] for row in reading.run(30)] == numbered(0, 30)
        refused = pytest.raises(SpoolerFailed, match="its certificate is not accepted")
        with query(port, tmp_path / "other", **broker) as reading, refused:
            reading.plan()


def test_a_spooler_that_fails_before_it_is_asked_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = SpoolerSupervisor._find

    def find_late(supervisor: SpoolerSupervisor) -> Remote | None:
        remote = find(supervisor)
        if remote is not None:
            wait_until(lambda: remote.post("/advance", owner=supervisor._owner)["error"] != "", "the broker refuses")
        return remote

    monkeypatch.setattr(SpoolerSupervisor, "_find", find_late)
    with (
        running("mosquitto", tmp_path, "allow_anonymous false") as port,
        query(port, tmp_path / "spool", username="me", password="wrong") as reading,
    ):
        with pytest.raises(SpoolerFailed, match=r"(?i)not authorized"):
            reading.plan()
        assert (tmp_path / "spool" / "spooler.log").read_text().count(" serving ") == 1


def test_a_broker_that_is_not_there_fails_a_new_query_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.pipeline.mqtt.source.FIRST_CONNECTION", 0.5)
    with query(free_port(), tmp_path / "spool") as reading, pytest.raises(ConnectionError, match="cannot connect"):
        reading.plan()


def test_a_spooler_that_cannot_start_says_why(broker: int, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "progress.json").write_text("{")
    with pytest.raises(SpoolerFailed, match=r"spooler\.log:[\s\S]*JSONDecodeError"):
        Query(options(broker, folder)).plan()
