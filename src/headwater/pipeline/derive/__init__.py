"""What is derived from messages and readings: functions from DataFrames to DataFrames, without files, clocks or state.

Each is a function of the rows that it is given and nothing else: whoever reads the same rows, in whatever batches and
order, derives the same table. Jobs decide which rows those are, and commit what comes out.
"""
