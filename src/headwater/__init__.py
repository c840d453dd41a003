"""Headwater: MQTT from the edge to the lakehouse, nothing lost on the way."""

__version__ = "0.1.0"
