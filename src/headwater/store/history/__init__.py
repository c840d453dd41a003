"""History: blocks of a store that have gone to object storage, as Parquet with the same positions (docs/store.md)."""
