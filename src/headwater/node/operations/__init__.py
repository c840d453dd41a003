"""What operators see and change: metrics, logs, settings read again, checks."""
