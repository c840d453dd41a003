"""An executor in a pod: `python3 -m headwater.pipeline.submitting.executor executor`.

Spark describes executors by environment variables and leaves it to the image to start Java with them. The images of
Spark have a shell script for that; PySpark's wheel, of which ours is made, has none. This is its counterpart: the same
variables, the same class.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
OPTION: Final = "SPARK_JAVA_OPT_"


def command(environment: Mapping[str, str], java: str, spark: Path) -> list[str]:
    """Raises KeyError: Spark did not start this."""
    options = sorted((int(name.removeprefix(OPTION)), value) for name, value in environment.items() if _is_option(name))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    words = [word for name, variable in ARGUMENTS.items() for word in (name, environment[variable])]
    classes = os.pathsep.join([environment.get("SPARK_CONF_DIR", ""), str(spark / "jars" / "*")])
    return [java, *(value for _, value in options), f"-Xms{memory}", f"-Xmx{memory}", "-cp", classes, BACKEND, *words]


def _is_option(name: str) -> bool:
    return name.startswith(OPTION) and name.removeprefix(OPTION).isdecimal()


def main() -> None:
    if sys.argv[1:] != ["executor"]:
        sys.exit("this starts an executor of Spark on Kubernetes, with the environment that Spark gives it")
    import pyspark

    from headwater.pipeline.java import use_java

    use_java()
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        words = command(os.environ, str(java), Path(pyspark.__file__).parent)
    except KeyError as error:
        sys.exit(f"{error.args[0]} is not set: this is started by Spark on Kubernetes")
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
