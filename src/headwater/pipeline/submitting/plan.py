"""What is asked for, the same for each kind of cluster; and what comes of it, files by name.

Theory. The driver is `headwater pipeline run`, as everywhere: in client mode inside a pod, or in YARN's own container.
So all that is special is where it runs and what Spark is told, which goes into `spark-defaults.conf`, as Spark itself
has it. The pipeline's own settings stay the user's TOML file, byte by byte. Secrets are in none of the files: tokens
come from the environment, which the cluster fills from a Secret or from the user that submits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")
"""Of Kubernetes' objects (RFC 1123), with room for what is put behind it."""
MEMORY: Final = re.compile(r"([1-9]\d*)([mg])")
SECRET: Final = re.compile(r"(.*[._-])?(token|password|secret|credential|key)", re.IGNORECASE)
"""Settings that must not lie in a file that is applied or shipped: ours, and those of catalogs, such as
s3.secret-access-key."""
DECODING: Final = "decoding"
"""Has names of columns, and no secrets."""
PYTHON_SHARE: Final = 0.4
"""Of Java's memory, for what is beside it: Spark's own rule for Python programs, which it applies only where it starts
the driver's container itself; else executors would get a tenth."""
REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+")

Files = dict[str, str]


class PlanError(ValueError):
    """It cannot be submitted so; the text says what to change."""


@dataclass(frozen=True)
class Plan:
    """`config` is the text of the pipeline's settings; `options` are further ones of `headwater pipeline run`."""

    lake: str
    name: str = "headwater-pipeline"
    config: str = ""
    executors: int = 2
    executor_cores: int = 1
    executor_memory: str = "2g"
    driver_memory: str = "2g"
    options: tuple[str, ...] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PlanError(f"--name is {self.name!r}; small letters, digits and dashes, 42 at most, a letter first")
        if not REMOTE.fullmatch(self.lake):
            raise PlanError(
                f"--lake is {self.lake!r}: driver and executors need object storage, such as s3://bucket/lake"
            )
        for option, memory in (("--executor-memory", self.executor_memory), ("--driver-memory", self.driver_memory)):
            if not MEMORY.fullmatch(memory):
                raise PlanError(f"{option} is {memory!r}; it has to be such as 512m or 2g")
        for option, count in (("--executors", self.executors), ("--executor-cores", self.executor_cores)):
            if count < 1:
                raise PlanError(f"{option} is {count}; it has to be 1 at least")
        for key, value in self.spark.items():
            if not re.fullmatch(r"spark\.\S+", key) or "\n" in value:
                raise PlanError(f"--conf {key}={value}: it has to be spark.NAME=VALUE, on one line")
        self._check_config()

    def _check_config(self) -> None:
        try:
            given = tomllib.loads(self.config)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"--config is no TOML: {error}") from None
        for name in _names({table: each for table, each in given.items() if table != DECODING}):
            if SECRET.fullmatch(name.rpartition("] ")[2]):
                raise PlanError(
                    f"--config has a secret, {name}, and would be copied in plain text; take it out, and "
                    "let the environment have HEADWATER_REST__TOKEN, HEADWATER_METRICS_TOKEN or HEADWATER_LINEAGE_KEY"
                )

    def common(self) -> dict[str, str]:
        """Settings of Spark on any cluster, below those of the user."""
        return {
            "spark.app.name": self.name,
            "spark.executor.instances": str(self.executors),
            "spark.executor.cores": str(self.executor_cores),
            "spark.executor.memory": self.executor_memory,
            "spark.executor.memoryOverheadFactor": str(PYTHON_SHARE),
            "spark.driver.memory": self.driver_memory,
        }

    def words(self, config: str) -> list[str]:
        """Of the driver: `headwater …`, the settings being in the file `config`."""
        return ["pipeline", "run", "--lake", self.lake, "--config", config, *self.options]


def _names(value: object, where: str = "") -> Iterator[str]:
    """Of all settings, each behind the table in which it is."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, dict | list):
                yield from _names(each, f"{where}.{name}".lstrip("."))
            else:
                yield f"[{where}] {name}" if where else str(name)
    elif isinstance(value, list):
        for each in value:
            yield from _names(each, where)


def defaults(settings: Mapping[str, str]) -> str:
    """The text of spark-defaults.conf."""
    width = max(map(len, settings), default=0)
    return "".join(f"{key:<{width}}  {value}\n" for key, value in sorted(settings.items()))


def mebibytes(memory: str) -> int:
    found = MEMORY.fullmatch(memory)
    assert found is not None
    return int(found[1]) * (1024 if found[2] == "g" else 1)


def container_memory(memory: str) -> int:
    """MiB of a container with a Java of so much memory, Python beside it."""
    heap = mebibytes(memory)
    return heap + max(384, int(heap * PYTHON_SHARE))
