"""Rows of a claim that is dropped, because all its topics are the same node's without it.

Theory. A reader takes a topic's rows by key: of those with one claim and one epoch the one that ends first counts. So a
row that goes on has to be of the claim by which its topics really come, or it ends when the topics do not, or does not
end when they do. Without a claim, its topics are by the most specific ones of what is left: often one, the wider
filter, but not always. Without `plant/0/#`, `plant/0/a` may be by `plant/+/a`, and all others by `plant/#`.

So each row of the claim that goes on, and what has ended of it (the same key), becomes one of each *taker* that has
some of it. And for topics of a more specific taker, the row of a less specific one has ended before its first position:
an empty row says so. When that taker is dropped in turn, its topics come to the less specific one: then its empty rows
go, and what they stood for is handed over like the rest.
"""

from __future__ import annotations

from headwater.edge.declaration import Row
from headwater.edge.ownership import Claim, Table, covers, intersection, overlap, specificity


def takers(table: Table, filter: str) -> list[Claim]:
    """By which claims the topics of a filter are owned without a claim of it, the most specific one first. Claims that
    are more specific than the filter are none: by these they are owned with it, too."""
    found, least = [], specificity(filter)
    for claim in table:
        if claim.filter != filter and specificity(claim.filter) >= least and overlap(claim.filter, filter):
            found.append(claim)
            if covers(claim.filter, filter):
                break
    return found


def handed_over(rows: list[Row], filter: str, table: Table) -> list[Row]:
    """The rows of a node when it drops the claim of a filter; all takers are its own."""
    taking = [each.filter for each in takers(table, filter)]
    epochs = {row.epoch for row in rows if row.claim == filter and row.last is None}
    found: list[Row] = []
    for row in rows:
        if row.epoch not in epochs or not (row.claim == filter or _stands_for(row, filter, taking)):
            found.append(row)
        elif row.claim == filter:
            found += [each for each in _parts(row, taking) if each not in found and each not in rows]
    return found


def _stands_for(row: Row, filter: str, taking: list[str]) -> bool:
    """Whether it is empty because its topics were by the claim that is dropped."""
    return row.claim in taking and row.last == row.first - 1 and covers(filter, row.filter)


def _parts(row: Row, taking: list[str]) -> list[Row]:
    found: list[Row] = []
    for number, claim in enumerate(taking):
        if not overlap(row.filter, claim):
            continue
        part = row._replace(filter=intersection(row.filter, claim), claim=claim)
        found.append(part)
        if row.last is None:
            found += [
                part._replace(filter=intersection(part.filter, other), last=row.first - 1)
                for other in taking[:number]
                if overlap(part.filter, other)
            ]
    return found
