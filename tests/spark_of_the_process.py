"""One Spark for all tests of a process: starting Java costs more than most tests that need it.

The fixture `one_spark` (tests/conftest.py) starts it when the first test asks. A module borrows it with settings of its
own, and leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.pipeline.session import SHORT_LIFE, end_session, make_session

SETTINGS = {**SHORT_LIFE, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


@contextmanager
def started(log: Path) -> Iterator[SparkSession]:
    session = make_session("local[2]", settings=SETTINGS, log=log)
    try:
        yield session
    finally:
        end_session(session)


@contextmanager
def borrowed(session: SparkSession, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """With these settings, which are taken back, as are running queries, cached tables and views."""
    before = dict(session.conf.getAll)
    for name, value in (settings or {}).items():
        session.conf.set(name, value)
    try:
        yield session
    finally:
        for query in session.streams.active:
            query.stop()
        session.catalog.clearCache()
        for table in session.catalog.listTables():
            if table.isTemporary:
                session.catalog.dropTempView(table.name)
        now = dict(session.conf.getAll)
        for name in now.keys() | before.keys():
            if now.get(name) == before.get(name) or not session.conf.isModifiable(name):
                continue
            if name in before:
                session.conf.set(name, before[name])
            else:
                session.conf.unset(name)
