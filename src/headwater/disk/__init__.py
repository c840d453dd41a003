"""Files, and RocksDB on them, without knowing what they hold."""
