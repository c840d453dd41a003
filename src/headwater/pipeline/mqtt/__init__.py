"""`format("mqtt")` for Spark: a stream source and a writer for any MQTT 5 broker (docs/pipeline-mqtt.md).

    from headwater.pipeline.mqtt import MqttSource
    spark.dataSource.register(MqttSource)

Why, beside store and bridge. Spark gives exactly once if a source can replay a range. MQTT cannot; our store can, and
`format("headwater")` reads it (ADR 16): better wherever there is one. This package is for brokers without a store,
without a node of ours and a bridge to it in between, and for the live path beside a store. It keeps what a broker sent
in a spool, whose numbers make ranges that can be read again, and acknowledges it when Spark has committed it: at least
once.

    source.py       on the driver, for Spark: offsets and ranges
    supervisor.py   on the driver: starts the spooler and sees that it lives
    spooler.py      a process of its own: connections, acknowledgements and the spool (spool.py, service.py)
    writer.py       the way back: rows as messages

The spooler imports this package without Spark: hence the class is looked up when it is asked for.
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
