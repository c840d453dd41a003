"""`format("mqtt")` for Spark: a stream source and a writer for any MQTT 5 broker (docs/pipeline-mqtt.md).

    from headwater.pipeline.mqtt import MqttSource
    spark.dataSource.register(MqttSource)

The source's connections and spool are in a process of their own, the spooler, which imports this package without Spark:
hence the class is looked up when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.pipeline.mqtt.source import MqttSource

__all__ = ["MqttSource"]


def __getattr__(name: str) -> object:
    if name == "MqttSource":
        from headwater.pipeline.mqtt.source import MqttSource

        return MqttSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
