"""`format("headwater")`: messages of one or many delivery stores, as a stream or as they are now."""

from headwater.pipeline.source.datasource import HeadwaterSource

__all__ = ["HeadwaterSource"]
