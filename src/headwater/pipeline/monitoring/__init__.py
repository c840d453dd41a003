"""What a running pipeline tells others: figures for Prometheus, health, and its lineage by commit."""
