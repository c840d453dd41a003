"""Operations: how members of shared groups did, minute by minute; and, if that is switched on, advice for the fabric.

Theory. Advice is a function of the minutes that are accounted for (`completeness` notes their positions), so a step
that is done again makes the same rows with the same number. It is committed first and sent then. Who is
killed between the two sends it when it comes back: what is newest in the table is sent at each start, and nodes take a
number once.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.derive.moments import moment
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import MINUTE, Spans, commit_span, first_arrival, narrowed
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.operations.advice import SPLIT, WEIGHTS, Basis, newest
from headwater.pipeline.operations.members import members
from headwater.pipeline.operations.sender import Sender
from headwater.pipeline.operations.splits import split_advice
from headwater.pipeline.operations.trees import tree_advice
from headwater.pipeline.operations.weights import weights_advice
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.tables import ADVICE, BRONZE, COMPLETENESS, MEMBERS, TRAFFIC
from headwater.store.reader import StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SILENT: Final = timedelta(minutes=10)
"""For so long a member may have said nothing, and what it got since is still known."""
NUMBER: Final = "number"
log = logging.getLogger(__name__)


def members_step(spark: SparkSession, lake: Lake, clock: datetime, most: int) -> int | None:
    """Minutes that are over in every store; how many rows, or None if there are none."""
    bronze = lake.snapshot(BRONZE)
    span = Spans(MEMBERS, MINUTE).next(lake, clock, first_arrival(bronze))
    if span is None:
        return None

    def derive(start: datetime, end: datetime) -> DataFrame:
        return members(bronze.read_between(spark, "arrival", start - SILENT, end), start, end)

    return commit_span(lake, MEMBERS, narrowed(bronze, span, MINUTE, lambda *both: both, most), derive)


def advice_step(spark: SparkSession, lake: Lake, settings: Settings) -> int | None:
    """Advice from the last minutes that are accounted for; how many rows were made, or None if nothing is new."""
    accounts = lake.snapshot(COMPLETENESS)
    until = accounts.note(UNTIL)
    positions = accounts.positions(COMPLETENESS.name)
    if until is None or not sum(positions.values()):
        return None
    basis = Basis(positions, moment(until))
    log_of_advice = lake.log(ADVICE)
    known = log_of_advice.look().note(NUMBER)
    if known is not None and known >= basis.number:
        return None
    rows = _rows(spark, lake, settings, basis)
    files = write_rows(rows, log_of_advice)
    log_of_advice.commit(files, {NUMBER: basis.number})
    send(spark, lake, settings)
    return sum(file.rows for file in files)


def send(spark: SparkSession, lake: Lake, settings: Settings) -> int:
    """The newest advice of each subject, to all stores' nodes; how many were taken. A node that does not answer gets it
    with the next."""
    rows = [row.asDict() for row in lake.snapshot(ADVICE).read(spark).collect()]
    held = [row for kind in (WEIGHTS, SPLIT) for row in newest(rows, kind).values()]
    sent = 0
    source = settings.source()
    for url in Addresses(source).now() if held else ():
        try:
            sent += Sender.by_rest(source.client(url, retries=1, timeout=10.0)).send(held)
        except (StoreError, ValueError) as error:  # ValueError: that is no address
            log.warning("the node at %s could not be advised: %s", url, error)
    return sent


def _rows(spark: SparkSession, lake: Lake, settings: Settings, basis: Basis) -> DataFrame:
    """Of all kinds, from as many minutes as advice holds for."""
    advising = settings.advising
    start = basis.made - timedelta(seconds=max(advising.life, 60.0 * advising.least_minutes))
    did = lake.snapshot(MEMBERS).read_between(spark, "minute", start, basis.made)
    carried = lake.snapshot(TRAFFIC).read_between(spark, "minute", start, basis.made)
    last = lake.snapshot(ADVICE).read(spark)
    filters: dict[str, Any] = {store: list(settings.stored_filters) for store in basis.positions}
    made = weights_advice(did, advising, basis, last)
    made = made.unionByName(split_advice(carried, filters, advising, basis, last))
    return made.unionByName(tree_advice(carried, did, advising, basis)).coalesce(1)
