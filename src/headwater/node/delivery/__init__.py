"""The delivery tier: a message is stored, has a position, and is delivered (docs/store.md); REST (docs/rest.md)."""
