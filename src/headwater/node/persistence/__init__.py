"""Sessions and retained messages that outlive the process (ADR 11)."""
