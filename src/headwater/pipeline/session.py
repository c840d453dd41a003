"""A Spark session as the pipeline needs it: Java, Python, the package on executors, our formats by name."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.java import QUICK_JAVA, use_java
from headwater.pipeline.masters import NoMaster, check_master
from headwater.pipeline.shipping import OURS, make_zip
from headwater.pipeline.versions import OldSpark, check_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}
SHORT_LIFE: Final = {"spark.driver.extraJavaOptions": f"-Dfile.encoding=UTF-8 {QUICK_JAVA}"}
"""For a session that lives for seconds."""
LOCAL_IP: Final = "SPARK_LOCAL_IP"
LARGEST_LOG: Final = 10 << 20
"""Bytes of a log with which another one is begun; one old one stays."""


class NoSpark(Exception):
    """PySpark is not installed, or nobody answers where Spark should be; the text says what to do."""


def make_session(
    master: str = "local[*]",
    *,
    name: str = "headwater",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """`master` is `local[N]`, `spark://host:port` or, for Spark Connect, `sc://host:port`. A session that this process
    has already is taken as it is. What Java says goes to our standard error, or into the file `log`. Raises NoJava,
    NoSpark."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError:
        raise NoSpark("PySpark is not installed: pip install 'headwater[spark]'") from None
    try:
        check_version(pyspark.__version__)
    except OldSpark as error:
        raise NoSpark(f"{error}: pip install -U 'headwater[spark]'") from None
    try:
        check_master(master)
    except NoMaster as error:
        raise NoSpark(str(error)) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        use_java()
        builder = builder.master(master).appName(name)
        for key, value in _fixed(master).items():
            builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    if master.startswith("local"):
        os.environ["PYTHONPATH"] = os.pathsep.join(_paths())  # before Java starts, whose workers inherit it
    with contextlib.nullcontext() if log is None else _chatter_into(log), _deaf_java(), _pages_on_loopback(master):
        session = _started(builder)
    _expect_the_end()
    for key, value in SETTINGS.items():
        session.conf.set(key, (settings or {}).get(key, value))
    ship(session, master)
    register(session)
    return session


@contextlib.contextmanager
def _pages_on_loopback(master: str) -> Iterator[None]:
    """Spark's own pages ask nobody who they are. Java looks where they listen when it starts, into its environment."""
    if not master.startswith("local") or LOCAL_IP in os.environ:
        yield
        return
    os.environ[LOCAL_IP] = "127.0.0.1"
    try:
        yield
    finally:
        del os.environ[LOCAL_IP]


@contextlib.contextmanager
def _deaf_java() -> Iterator[None]:
    """A Java that starts meanwhile ignores SIGTERM: who ends a service sends it to all its processes, and ours has to
    finish its step before Java goes. It goes when we close its input, or are gone ourselves."""
    from pyspark import java_gateway

    launcher: Any = java_gateway
    popen = launcher.Popen

    def start(words: Any, **options: Any) -> subprocess.Popen[bytes]:
        asked = options.pop("preexec_fn", None)

        def begin() -> None:
            if asked is not None:
                asked()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        started: subprocess.Popen[bytes] = popen(words, preexec_fn=begin, **options)
        return started

    launcher.Popen = start
    try:
        yield
    finally:
        launcher.Popen = popen


def _expect_the_end() -> None:
    """PySpark has a server for counters that Java sends, and prints a traceback if Java goes before the server does:
    which of them is first is chance."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    server: Any = getattr(context, "_accumulatorServer", None)  # Spark Connect has none
    if server is None:
        return
    said = type(server).handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            said(server, request, address)

    server.handle_error = handle_error


def end_session(session: SparkSession, patience: float = 20.0) -> None:
    """Stop it, and the Java that was started for it: it is gone when this returns."""
    from pyspark import SparkContext

    with contextlib.suppress(Exception):  # Java may have gone before us
        session.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is None:  # Spark Connect has none
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    java: subprocess.Popen[bytes] = gateway.proc  # which ends when nobody speaks to it
    if java.stdin is not None:
        with contextlib.suppress(OSError):
            java.stdin.close()
    try:
        java.wait(patience)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


@contextlib.contextmanager
def _chatter_into(log: Path) -> Iterator[None]:
    """Java inherits our standard error when it starts, and its workers inherit it from Java: for this while, ours is
    the file. Nothing else could keep away what Java says before it has read any settings."""
    if log.exists() and log.stat().st_size > LARGEST_LOG:
        log.replace(log.with_name(f"{log.name}.old"))
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what it raises as well
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _fixed(master: str) -> dict[str, str]:
    """What cannot be changed later."""
    cores = str(os.cpu_count() or 2)
    fixed = {"spark.sql.shuffle.partitions": cores, "spark.driver.extraJavaOptions": "-Dfile.encoding=UTF-8"}
    return {**fixed, **LOCAL_SETTINGS} if master.startswith("local") else {**fixed, "spark.ui.enabled": "false"}


def _started(builder: Any) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
    except ImportError as error:  # what a client of Connect needs
        raise NoSpark(f"{error}: pip install 'headwater[connect]'") from None
    return session


def ship(session: SparkSession, master: str, package: str = OURS) -> None:
    """A package, to executors; those of a local session have it."""
    if master.startswith("local"):
        return
    folder = Path(tempfile.mkdtemp(prefix="headwater-ship-"))
    atexit.register(shutil.rmtree, folder, True)
    archive = make_zip(folder, package)
    if master.startswith("sc://"):
        session.addArtifact(str(archive), pyfile=True)
    else:
        session.sparkContext.addPyFile(str(archive))


def _paths() -> list[str]:
    ours = str(Path(__file__).parent.parent.parent)
    return list(dict.fromkeys([ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))


def register(session: SparkSession) -> None:
    """Our formats, by their names."""
    from headwater.pipeline.lake.sink import DeltaSink
    from headwater.pipeline.mqtt import MqttSource
    from headwater.pipeline.source import HeadwaterSource

    for format in (HeadwaterSource, DeltaSink, MqttSource):
        session.dataSource.register(format)
