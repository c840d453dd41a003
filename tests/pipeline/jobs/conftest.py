"""Two stores, as the tests of the source have them."""

from tests.pipeline.source.conftest import one, servers, two

__all__ = ["one", "servers", "two"]
