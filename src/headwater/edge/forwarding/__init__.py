"""Store and forward: a store's messages go to another broker by position (docs/forwarding.md)."""
