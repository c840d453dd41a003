"""A driver of its own, to be killed or to use a cluster: messages of a broker into Parquet files.

python -m tests.pipeline.mqtt.driver '{"master": …, "port": …, "folder": …, "once": …, "options": {…}}'

With `once` it takes what there is and ends; without, it goes on until it is killed. It says READY when the query runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headwater.pipeline.mqtt import MqttSource
from headwater.pipeline.session import make_session

PATIENCE = 400


def main(given: dict[str, Any]) -> None:
    spark = make_session(given["master"], settings=given.get("settings"))
    spark.dataSource.register(MqttSource)
    folder = Path(given["folder"])
    source = {"broker": f"mqtt://127.0.0.1:{given['port']}", "topics": "plant/#", "spool": str(folder / "spool")}
    query = (
        spark.readStream.format("mqtt")
        .options(**source, **given["options"])
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**({"availableNow": True} if given["once"] else {"processingTime": "0 seconds"}))
        .start()
    )
    print("READY", flush=True)
    if given["once"]:
        assert query.awaitTermination(PATIENCE), "the query does not end"
    else:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
