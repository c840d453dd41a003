"""Bridges: connections of ours to other brokers, over which topics are shared (docs/bridge.md)."""
