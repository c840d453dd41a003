"""The process that runs a pipeline until it is killed; told to drain, it comes to an end and examines the tables.

python -m headwater_lab.pipeline_chaos.driver '{"lake": …, "lake_options": {…}, "urls": […], "examined": […],
    "master": …, "sink": "honest", "iceberg": FOLDER or "", "tell": 5}'

It reads the stores of `urls`, and compares the tables with those of `examined`. It tells, a line of JSON each, on the
file descriptor `tell`: {"java": pid} when Spark runs, {"round": …} after each round, {"failed": why} when the pipeline
has ended and is started again in the same Spark, {"found": …} at the end. A line `drain` on its input says that
publishers have stopped; the end of its input ends it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from headwater.pipeline.catalogs.registrar import Registrar
from headwater.pipeline.jobs.pipeline import Pipeline, PipelineError, drain
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.session import make_session
from headwater_lab.pipeline_chaos.examining import compare_with_iceberg, examine
from headwater_lab.pipeline_chaos.guilty import SINKS
from headwater_lab.pipeline_chaos.settings import iceberg_settings, settings_for, spark_settings

WITHOUT_JAVA: Final = 3
"""The exit code."""
UNKNOWN: Final = 4


class Driver:
    def __init__(self, given: dict[str, Any]) -> None:
        self.lake = Lake(given["lake"], options=given["lake_options"])
        self.settings: Settings = settings_for(given["urls"])
        self._examined: Settings = settings_for(given["examined"])
        self.master: str = given["master"]
        self.sink: str = given["sink"]
        self.iceberg = iceberg_settings(Path(given["iceberg"])) if given["iceberg"] else None
        self._tell: int = given["tell"]
        self.draining = threading.Event()

    def run(self) -> int:
        threading.Thread(target=self._listen, daemon=True).start()
        spark = make_session(self.master, name="chaos", settings=spark_settings(self.master))
        gateway: Any = spark.sparkContext._gateway
        java = gateway.proc
        if self.sink in SINKS:
            spark.dataSource.register(SINKS[self.sink])
        self.tell({"java": java.pid})
        while True:
            try:
                self._pipeline(spark)
                return 0
            except Exception as error:
                if java.poll() is not None:
                    return WITHOUT_JAVA
                traceback.print_exc()
                if not isinstance(error, PipelineError):
                    return UNKNOWN
                self.tell({"failed": str(error)[:500]})

    def _pipeline(self, spark: SparkSession) -> None:
        registrar = Registrar(self.lake, [], self.iceberg)
        with Pipeline(spark, self.lake, self.settings) as pipeline:
            pipeline.watchers.append(registrar.saw)
            while not self.draining.is_set():
                found = pipeline.round()
                self.tell({"round": {"did": found.did, "rows": found.rows, "lag": found.lag}})
                self.draining.wait(self.settings.trigger)
            drain(pipeline)
        examined = examine(spark, self.lake, self._examined)
        if self.iceberg is not None:
            registrar.once()
            examined.wrong += compare_with_iceberg(self.lake, self.iceberg)
        self.tell({"found": dataclasses.asdict(examined)})

    def tell(self, what: dict[str, Any]) -> None:
        line = f"{json.dumps(what)}\n".encode()
        while line:
            line = line[os.write(self._tell, line) :]

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "drain":
                self.draining.set()
        os._exit(0)


if __name__ == "__main__":
    code = Driver(json.loads(sys.argv[1])).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # nothing of Spark is waited for
