"""The data pipeline on Spark: sources, sinks, tables and jobs (`pip install 'headwater[spark]'`).

What executors import of it needs pyarrow and the standard library only.
"""
