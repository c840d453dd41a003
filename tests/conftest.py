"""Options of the whole test suite (pytest reads options only from here)."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.tiers import is_left_out, select_fast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How fast examples are made depends on what else the machine does, and says nothing of what is tested.
settings.register_profile("headwater", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headwater")

FEWEST = 5
"""Examples that a property is tested with at least."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("broker", "wire scenarios")
    group.addoption("--target", metavar="HOST:PORT", help="run the wire scenarios against this broker, not our own")
    group.addoption(
        "--skip-deviating", metavar="NAME", help="leave out scenarios from which this broker is known to deviate"
    )

    parser.addoption("--fast", action="store_true", help="only what needs no Java, no other broker and no kills")
    parser.addoption(
        "--lightly",
        action="append",
        default=[],
        metavar="PATH",
        help="property tests below this path have a quarter of their examples (with --fast, a tenth), as they are run "
        "elsewhere with all",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and is_left_out(collection_path, config.rootpath) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are garbage to nobody: the collector neither looks for some while they are made, nor passes
    through them after each test (a third of the time of collection, in every process)."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries that count their objects at the end complain of those that are left


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        select_fast(config, items)
    share = 10 if config.getoption("--fast") else 4
    paths = [config.rootpath / each for each in config.getoption("--lightly")]
    seen: set[int] = set()
    for item in items:
        if any(item.path.is_relative_to(each) for each in paths):
            holder = _settings_holder(item)
            if holder is not None and id(holder[0]) not in seen:
                seen.add(id(holder[0]))
                made: settings = getattr(*holder)
                setattr(*holder, settings(made, max_examples=max(FEWEST, made.max_examples // share)))


def _settings_holder(item: pytest.Item) -> tuple[object, str] | None:
    """Who has the settings of a property test or a state machine, and under which name."""
    test = getattr(item, "obj", None)
    if hasattr(test, "_hypothesis_internal_use_settings"):
        return getattr(test, "__func__", test), "_hypothesis_internal_use_settings"
    machine = getattr(item, "cls", None)
    return (machine, "settings") if isinstance(getattr(machine, "settings", None), settings) else None


def pytest_configure(config: pytest.Config) -> None:
    # Who runs tests in the background of a shell ignores it, and so would every process that is to be interrupted.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for line in (
        "clause(*ids): normative statements of MQTT 5.0 that a test shows",
        "clause311(*ids): normative statements of MQTT 3.1.1 that a test shows",
        "deviates(text): another broker's name, and what it does against the standard",
        "own_settings: needs a broker of our own with settings of its own",
    ):
        config.addinivalue_line("markers", line)


@pytest.fixture(scope="session")
def one_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The only Spark of this process; modules borrow it (tests/spark_of_the_process.py)."""
    from tests.spark_of_the_process import started

    with started(tmp_path_factory.mktemp("spark") / "log") as session:
        yield session
