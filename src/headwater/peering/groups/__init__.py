"""Shared groups whose members are at several nodes."""
