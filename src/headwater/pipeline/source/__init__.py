"""`format("headwater")`: messages of one or many delivery stores, as a stream or as they are now."""

from headwater.pipeline import portable  # first: it says which Spark is needed, before something is found missing
from headwater.pipeline.source.datasource import HeadwaterSource

__all__ = ["HeadwaterSource", "portable"]
