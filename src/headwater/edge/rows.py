"""What becomes of a node's rows when another claim gets some of their topics; and when a claim is void, as it was
dropped because all its topics are the same node's without it, or was that of a node that is lost for good.

Theory. A reader takes a topic's rows by key: of those with one claim and one epoch the one that ends first counts. So a
row that goes on has to be of the claim by which its topics really come, or it ends when the topics do not, or does not
end when they do. Without a claim, its topics are by the most specific ones of what is left: often one, the wider
filter, but not always. Without `plant/0/#`, `plant/0/a` may be by `plant/+/a`, and all others by `plant/#`.

So each row of the claim that goes on, and what has ended of it (the same key), becomes one of each *taker* that has
some of it. And for topics of a more specific taker, the row of a less specific one has ended before its first position:
an empty row says so. When that taker is dropped in turn, its topics come to the less specific one: then its empty rows
go, and what they stood for is handed over like the rest.

The topics of a claim of a lost node are found in the same way: what ended for it, of the rows of this node's takers,
goes on where it ended, with the epoch of the void claim.
"""

from __future__ import annotations

from headwater.edge.declaration import Row
from headwater.edge.ownership import Claim, Table, covers, intersection, overlap, specificity


def has_part(row: Row, filter: str) -> bool:
    """Whether new messages of topics of a filter are of this row, as long as nobody claims it."""
    return row.last is None and overlap(row.filter, filter) and specificity(row.claim) >= specificity(filter)


def closed(rows: list[Row], filter: str, epoch: int, last: int) -> list[Row]:
    """Rows of claims with lower epochs have nothing of this filter behind that position."""
    found = list(rows)
    for row in rows:
        if not has_part(row, filter) or row.epoch >= epoch:
            continue
        if covers(filter, row.filter):
            found[found.index(row)] = row._replace(last=last)
        else:
            part = row._replace(filter=intersection(row.filter, filter), last=last)
            if not any(each.last is not None and _same(each, part) for each in found):
                found.append(part)
    return found


def _same(one: Row, other: Row) -> bool:
    """Whether the first is about all that the second is about."""
    return covers(one.filter, other.filter) and (one.claim, one.epoch) == (other.claim, other.epoch)


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


def regained(
    rows: list[Row], void: Claim, claims: list[Claim], node: str, ended: set[Claim]
) -> tuple[list[Row], list[Claim]]:
    """The rows of a node that go on when nobody has that claim any more, and claims of others that have some of it, and
    may not have ended here. `claims`: all there are, the most specific ones first."""
    found: list[Row] = []
    others: list[Claim] = []
    before: list[Claim] = []
    for claim in (each for each in claims if overlap(each.filter, void.filter)):
        is_taker = specificity(claim.filter) >= specificity(void.filter)
        if is_taker and claim.node == node:
            for row in _gone_on(rows, void, claim.filter):
                known = [each for each in before if overlap(each.filter, row.filter)]
                done = [each.filter for each in known if each.node == node or each in ended]
                found += [row, *_empty(row, done)]
                others += [each for each in known if each.filter not in done]
        before.append(claim)
        if is_taker and covers(claim.filter, void.filter):
            break
    return found, others


def _gone_on(rows: list[Row], void: Claim, claim: str) -> list[Row]:
    """Of the rows of a claim that go on but for the topics of the void one: these topics."""
    found = []
    for row in rows:
        if row.claim == claim and row.last is None and overlap(row.filter, void.filter):
            filter = intersection(row.filter, void.filter)
            ends = [each.last for each in rows if each.last is not None and _same(each, row._replace(filter=filter))]
            if ends:
                found.append(Row(filter, void.epoch, min(ends) + 1, None, claim))
    return found


def _empty(row: Row, claims: list[str]) -> list[Row]:
    """For topics that are by more specific claims, that row has ended before its first position."""
    last = row.first - 1
    return [
        row._replace(filter=intersection(row.filter, each), last=last) for each in claims if overlap(row.filter, each)
    ]


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
            found += _empty(part, taking[:number])
    return found
