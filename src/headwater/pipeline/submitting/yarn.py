"""A pipeline on YARN: the driver in a container of the cluster, with an environment of Python that goes along.

`spark-submit` in cluster mode ships three files: the environment as an archive, the pipeline's settings, and a driver
of three lines that is `headwater pipeline run`. YARN starts the driver again if its machine or itself fails, as often
as `spark.yarn.maxAppAttempts` says within `attemptFailuresValidityInterval`; the pipeline goes on where it was.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from headwater.pipeline.submitting.plan import PYTHON_SHARE, Files, Plan, defaults

ARCHIVE: Final = "environment.tar.gz"
ATTEMPTS: Final = 10
"""Within an hour; then somebody should look."""


@dataclass(frozen=True)
class Yarn:
    """`secrets` are names of variables that the driver and executors get from the environment of whoever submits."""

    queue: str = "default"
    secrets: tuple[str, ...] = ()


def files(plan: Plan, cluster: Yarn) -> Files:
    return {
        "make-environment.sh": ENVIRONMENT,
        "driver.py": driver(plan),
        "pipeline.toml": plan.config,
        "spark-defaults.conf": defaults(spark_settings(plan, cluster)),
        "submit.sh": submit(cluster),
    }


def commands(plan: Plan, cluster: Yarn) -> list[list[str]]:
    """Which make it run, in the folder of the files."""
    return [["bash", "make-environment.sh"], ["bash", "submit.sh"]]


def spark_settings(plan: Plan, cluster: Yarn) -> dict[str, str]:
    python = "./environment/bin/python"
    return {
        **plan.common(),
        "spark.driver.memoryOverheadFactor": str(PYTHON_SHARE),
        "spark.master": "yarn",
        "spark.submit.deployMode": "cluster",
        "spark.yarn.queue": cluster.queue,
        "spark.yarn.maxAppAttempts": str(ATTEMPTS),
        "spark.yarn.am.attemptFailuresValidityInterval": "1h",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python,
        "spark.yarn.appMasterEnv.PYSPARK_DRIVER_PYTHON": python,
        "spark.executorEnv.PYSPARK_PYTHON": python,
        **plan.spark,
    }


def driver(plan: Plan) -> str:
    words = ["headwater", *plan.words("pipeline.toml"), "--master", "yarn"]
    return f"""\
# Runs in YARN's container: the same command as anywhere.
import sys

from headwater.__main__ import main

sys.argv = {words!r}
main()
"""


ENVIRONMENT: Final = f"""\
#!/usr/bin/env bash
# Makes {ARCHIVE}: on a machine like those of the cluster, with the same Python.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m venv environment-build
environment-build/bin/pip install --quiet 'headwater[spark,objects,metrics,lineage]' venv-pack
environment-build/bin/venv-pack --force --prefix environment-build --output {ARCHIVE}
"""


def submit(cluster: Yarn) -> str:
    """Values of secrets are expanded when it runs, and are in no file."""
    given = [f'--conf "spark.{scope}.{name}=${{{name}}}"' for name in cluster.secrets for scope in SCOPES]
    lines = [
        "exec spark-submit",
        "--properties-file spark-defaults.conf",
        f"--archives {shlex.quote(f'{ARCHIVE}#environment')}",
        "--files pipeline.toml",
        *given,
        "driver.py",
    ]
    needed = "".join(f': "${{{name}:?has to be in the environment}}"\n' for name in cluster.secrets)
    return f"""\
#!/usr/bin/env bash
# Submits the pipeline, where HADOOP_CONF_DIR names the cluster.
set -euo pipefail
cd "$(dirname "$0")"
{needed}{f" {chr(92)}{chr(10)}    ".join(lines)}
"""


SCOPES: Final = ("yarn.appMasterEnv", "executorEnv")
