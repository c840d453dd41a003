"""The admin API: HTTP for those who run a broker (docs/operations.md). Needs the extra `headwater[admin]`."""
