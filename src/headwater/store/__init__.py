"""The delivery store: every message has a position, is on disk, and can be read again."""
