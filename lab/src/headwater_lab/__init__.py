"""The lab of Headwater: load, benchmarks, campaigns that kill and attack, and the experiments of papers again.

It is a distribution of its own (headwater-lab), which adds `headwater bench` and `headwater reproduce` to the command.
"""
