"""Several processes that are one node: `headwater broker --workers N` (docs/adr/0027-workers.md)."""
