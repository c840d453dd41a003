"""A standalone cluster of Spark on this machine: a master and workers, each a process of the wheel's own scripts."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headwater.pipeline.java import QUICK_JAVA

HOME = Path(pyspark.__file__).parent
EXECUTORS_MAY_DIE = "-Dspark.deploy.maxExecutorRetries=-1"
"""As often as they like: a master takes ten deaths in a row for the program's own fault, and ends it."""
EXECUTOR = b"CoarseGrainedExecutorBackend"
"""In an executor's command line."""
PATIENCE = 60.0
LOOK = 0.05
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class DidNotStart(Exception):
    """With what it has said."""


class Process:
    """A script of Spark in a group of its own, which ends with all that it has started; `log` is what it says."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                words, env=environment, cwd=log.parent, stdout=file, stderr=file, start_new_session=True
            )

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Until it has said that. Raises DidNotStart."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            ended = self._process.poll() is not None
            said = self.log.read_text(errors="replace")
            found = re.search(pattern, said)
            if found:
                return found
            if ended:
                break
            time.sleep(LOOK)
        raise DidNotStart(f"{pattern!r} is not in what it said:\n{said}")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


def environment_without_us(python: Path, folder: Path, memory: str) -> dict[str, str]:
    """Of a machine that has Spark and this Python, writes to the folder only, and speaks to nobody but itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    return {
        **kept,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} {EXECUTORS_MAY_DIE}",
        "PYSPARK_PYTHON": str(python),
    }


@dataclass(frozen=True)
class Cluster:
    """`folders` are where its workers keep what they run."""

    url: str
    folders: Sequence[Path]

    def executors(self) -> dict[str, str]:
        """Executors that there were, and the names of their workers' folders: `{"app-…/0": "worker-1"}`."""
        found = {}
        for folder in self.folders:
            for stderr in folder.glob("app-*/*/stderr"):
                found[f"{stderr.parent.parent.name}/{stderr.parent.name}"] = folder.name
        return found

    def running_executors(self) -> dict[int, str]:
        """Those that live: process ids, and the names of their workers' folders."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                place = Path(os.readlink(process / "cwd"))
                worker = next((folder for folder in self.folders if place.is_relative_to(folder)), None)
                if worker is not None and EXECUTOR in (process / "cmdline").read_bytes():
                    found[int(process.name)] = worker.name
        return found


@contextlib.contextmanager
def cluster(
    folder: Path, python: Path, workers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A master and workers with one core each. Their tasks have that Python, not our package unless it has it, and
    also what is in the environment given."""
    variables = {**environment_without_us(python, folder, "256m"), **(environment or {})}
    script = str(HOME / "bin" / "spark-class")
    with contextlib.ExitStack() as stack:

        def start(name: str, *words: str) -> Process:
            (folder / name).mkdir(parents=True)
            process = Process([script, *words], variables, folder / name / "log")
            stack.callback(process.end)
            return process

        master = start("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        names = [f"worker-{number}" for number in range(workers)]
        started = []
        for name in names:
            where = ["--work-dir", str(folder / name), "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            started.append(start(name, WORKER, *where, "--cores", "1", "--memory", "1g", url))
        for each in started:
            each.wait_for("Successfully registered with master")
        yield Cluster(url, [folder / name for name in names])
