"""Forwards of a node: its delivery store goes to another broker, by position (docs/forwarding.md)."""
