"""Facets of lineage that OpenLineage does not define: positions of a commit, and topic filters of a store.

Imported only where events are made: OpenLineage's client is an extra (`headwater[lineage]`).
"""

from __future__ import annotations

import attr
from openlineage.client.generated.base import DatasetFacet

SCHEMA = "urn:headwater:lineage:1:"


@attr.define
class StoreRange:
    store: str
    first: int
    last: int


@attr.define
class Positions(DatasetFacet):
    """The positions of each store that a commit brought, first and last."""

    stores: list[StoreRange] = attr.field(factory=list)

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}positions"


@attr.define
class TopicFilters(DatasetFacet):
    """The topic filters by which the stores keep messages."""

    filters: list[str] = attr.field(factory=list)

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}topics"
