"""Advice from outside, taken from retained messages; only loaded where it is switched on (docs/advice.md)."""
