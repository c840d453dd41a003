"""`headwater backup`, `restore`, `export` and `import`, in processes of their own, also killed ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.client import SyncClient
from headwater.node.persistence.backup import make_backup, snapshot_offline
from headwater.node.persistence.export import Export
from headwater.node.persistence.importing import import_lines
from headwater.node.persistence.schema import open_folder
from headwater.store.disk_store import DiskStore
from tests.node.admin.api import TOKEN
from tests.node.admin.test_serving import SETTINGS, served
from tests.store.messages import Writer, found

PATIENCE = 120.0
HEADER = {"kind": "headwater-export", "schema": 1}


def headwater(*arguments: object, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADWATER_ADMIN__TOKEN": TOKEN}
    return subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment
    )


def done(*arguments: object, input: str = "") -> str:
    finished = headwater(*arguments, input=input)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


def refused(*arguments: object, input: str = "") -> str:
    finished = headwater(*arguments, input=input)
    assert (finished.returncode, finished.stdout) == (1, "")
    return finished.stderr


def as_text(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def retained(count: int, payload: str) -> list[dict[str, Any]]:
    return [{"kind": "retained", "topic": f"t/{number}", "payload": payload} for number in range(count)]


def payloads(folder: Path) -> list[str]:
    backend = open_folder(folder)
    try:
        lines = list(Export(backend, pytest.fail).lines())
    finally:
        backend.close()
    return [line["payload"] for line in lines if line["kind"] == "retained"]


def test_the_way_of_a_folder(tmp_path: Path) -> None:
    data, backup, new, file = (tmp_path / name for name in ("data", "backup", "new", "lines"))
    lines = as_text(HEADER, *retained(3, "old"))
    assert done("import", data, input=lines).endswith(
        "data: 0 sessions, 0 subscriptions, 0 messages for them, 3 retained messages\n"
    )
    assert re.search(r"backup: \d+ files with [\d,]+ bytes, schema 1\n", done("backup", data, backup))
    done("restore", backup, new)
    done("export", new, file)
    assert file.read_text() == done("export", data)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "is not empty; with --force" in refused("restore", backup, data)
    done("restore", backup, data, "--force")
    assert "exists already" in refused("backup", data, backup)


def test_a_backup_has_the_messages_of_the_delivery_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    done("import", data, input=as_text(HEADER))
    assert "store 4711" not in done("backup", data, tmp_path / "without")
    store = DiskStore(data / "messages", id="4711")
    Writer(store).write("a", "b")
    store.commit("reader", 1)
    store.close()
    assert "with the messages of store 4711\n" in done("backup", data, tmp_path / "backup")
    assert "is as it was" in done("restore", tmp_path / "without", data, "--force")
    done("restore", tmp_path / "backup", tmp_path / "new")
    store = DiskStore(tmp_path / "new" / "messages", id="4711", create=False)
    assert [entry.topic for entry in found(store)] == ["a", "b"]
    assert store.reader("reader").position == 1
    store.close()


def test_messages_that_cannot_be_read_make_no_backup(tmp_path: Path) -> None:
    data = tmp_path / "data"
    done("import", data, input=as_text(HEADER))
    store = DiskStore(data / "messages", block_messages=1, seal_in_background=False)
    writer = Writer(store)
    for _ in range(50):
        writer.take(payload=os.urandom(2000))
    writer.sync()
    store.seal()
    store.prepare_checkpoint()
    store.close()
    file = max((data / "messages" / "db").glob("*.sst"), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert "it is damaged" in refused("backup", data, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for arguments, said in (
        (("backup", nowhere, tmp_path / "b"), f"headwater backup: {nowhere} is not a data folder"),
        (("export", nowhere), f"headwater export: {nowhere} is not a data folder"),
        (("restore", nowhere, tmp_path / "d"), f"headwater restore: {nowhere} is not a backup"),
        (("import", tmp_path / "d", nowhere), f"headwater import: cannot read {nowhere}: No such file or directory"),
    ):
        assert said in refused(*arguments)
    assert "headwater import: line 1: is not JSON" in refused("import", tmp_path / "d", input="no\n")
    assert not nowhere.exists()


def test_a_broker_that_runs(tmp_path: Path) -> None:
    """Its folder is its own, but it makes a copy when it is asked; nothing that was acknowledged is missing."""
    data = tmp_path / "data"
    with served(tmp_path, f'data_dir = "{data}"\n{SETTINGS}') as broker:
        broker._guard.cancel()  # starting so many commands may take longer than it has patience
        with SyncClient("127.0.0.1", broker.port) as client:
            for number in range(50):
                client.publish(f"t/{number}", "now", qos=1, retain=True)
        url = f"http://127.0.0.1:{broker.admin_port}"
        for command in (("backup", data, tmp_path / "b"), ("import", data)):
            assert f"the data folder {data} is used by another running process" in refused(*command)
        lines = done("export", data, "--admin", url)
        assert lines.count('"payload":"now"') == 50
        done("backup", data, tmp_path / "backup", "--admin", url)
        assert "does not use" in refused("backup", tmp_path, tmp_path / "b", "--admin", url)
        assert [
            each.name for each in data.iterdir() if each.name.startswith("snapshot")
        ] != []  # the one of the line above
    done("restore", tmp_path / "backup", tmp_path / "new")
    assert payloads(tmp_path / "new") == ["now"] * 50


# ---- kill -9 ---------------------------------------------------------------------------------------------------

KILLED = """
# Runs the command in a child for each count given, which kills itself when code of ours in the file FILE, or what it
# calls, has been entered or left so many times. With 0 it says how many times that is.
import os, signal, sys
from headwater.cli import main
import headwater.node.persistence.{module}, pydantic, rocksdict

def watch(frame, event, argument):
    global left
    if "/persistence/" in frame.f_code.co_filename or "/disk/" in frame.f_code.co_filename:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

for number, at in enumerate(sys.argv[1].split(",")):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        left = int(at)
        sys.argv = [part.replace("NUMBER", str(number)) for part in {command!r}]
        sys.setprofile(watch)
        try:
            main()
        finally:
            sys.setprofile(None)
            print("passed", -left, flush=True)
            os._exit(0)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run_killed(module: str, command: list[str], points: list[int]) -> str:
    script = KILLED.format(module=module, command=["headwater", *command])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", script, ",".join(map(str, points))]
    finished = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def killed_at_many_points(module: str, tmp_path: Path, command: list[str], count: int) -> list[Path]:
    """The folders that are left; `tmp_path/data` is what all of them were."""
    folders = [tmp_path / f"data{number}" for number in range(count)]
    shutil.copytree(tmp_path / "data", folders[0])
    said = run_killed(module, command, [0])
    total = int(re.findall(r"passed (\d+)", said)[0])
    shutil.rmtree(folders[0])
    for folder in folders:
        shutil.copytree(tmp_path / "data", folder)
    # More of them towards the end, where one store takes the place of the other.
    points = [round(total * (1 - (1 - step / count) ** 2)) for step in range(1, count)] + [total]
    said = run_killed(module, command, points)
    assert said.count(f"status {-signal.SIGKILL}") == count, said
    return folders


COUNT = 24


def test_kill_9_during_a_restore_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    import_lines(tmp_path / "source", [as_text(each).encode() for each in (HEADER, *retained(20, "new"))])
    with snapshot_offline(tmp_path / "source") as taken:
        make_backup(taken, tmp_path / "backup")
    import_lines(tmp_path / "data", [as_text(each).encode() for each in (HEADER, *retained(20, "old"))])
    command = ["restore", "--force", str(tmp_path / "backup"), str(tmp_path / "dataNUMBER")]
    found = []
    for folder in killed_at_many_points("backup", tmp_path, command, COUNT):
        found.append(payloads(folder))
        stores = [each for each in folder.iterdir() if each.name.startswith("store")]
        aside = [each for each in folder.iterdir() if each.name.startswith("replaced")]
        assert (len(stores), len(aside)) == (1, int(found[-1][0] == "new")), list(folder.iterdir())
    assert [["old"] * 20] * found.count(["old"] * 20) + [["new"] * 20] * found.count(["new"] * 20) == found
    assert ["old"] * 20 in found
    assert ["new"] * 20 in found


def test_kill_9_during_an_import_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    import_lines(tmp_path / "data", [as_text(each).encode() for each in (HEADER, *retained(20, "old"))])
    (tmp_path / "lines").write_text(as_text(HEADER, *retained(20, "new")))
    command = ["import", str(tmp_path / "dataNUMBER"), str(tmp_path / "lines")]
    found = []
    for folder in killed_at_many_points("importing", tmp_path, command, COUNT):
        found.append(payloads(folder))
        assert len([each for each in folder.iterdir() if each.name.startswith("store")]) == 1
    assert [["old"] * 20] * found.count(["old"] * 20) + [["new"] * 20] * found.count(["new"] * 20) == found
    assert ["old"] * 20 in found
    assert ["new"] * 20 in found


def test_a_file_of_mosquitto_is_imported_or_said_what_is_wrong(tmp_path: Path) -> None:
    file, folder = tmp_path / "mosquitto.db", tmp_path / "data"
    head = b"\x00\xb5\x00mosquitto db" + bytes(4) + bytes([0, 0, 0, 6])
    body = bytes(8) + b"\xff\xff\xff\xff" + bytes([0, 0, 0, 1]) + bytes(8) + b"c"
    file.write_bytes(head + bytes([0, 0, 0, 6, 0, 0, 0, len(body)]) + body)
    assert "1 sessions" in done("import", folder, "--mosquitto-db", file)
    file.write_bytes(head + b"rubbish, and more of it")
    assert "is damaged: no chunk is of the kind" in " ".join(refused("import", folder, "--mosquitto-db", file).split())
    assert "cannot read" in refused("import", folder, "--mosquitto-db", tmp_path / "none.db")
    assert "one thing at a time" in refused("import", folder, file, "--mosquitto-db", file)
