"""Retained messages of a cluster: every node has all, and differences are found and mended. Without I/O.

- `clock`, stamps that order what different nodes wrote: the last writer wins;
- `replica`, which stamp each topic has here, deletions included, and fingerprints of parts of it;
- `reconciling`, what two nodes say to each other to have the same.
"""
