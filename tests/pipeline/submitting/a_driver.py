"""A driver on Kubernetes: python -m tests.pipeline.submitting.a_driver MASTER. It prints what two tasks say of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from headwater.pipeline.session import end_session, make_session


def where(_: Iterator[int]) -> Iterator[str]:
    from headwater.store.columns import COLUMNS  # of the package that was shipped

    yield f"{os.environ.get('SPARK_EXECUTOR_ID')}:{len(COLUMNS) > 0}"


if __name__ == "__main__":
    spark = make_session(sys.argv[1])
    print(sorted(set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect())), flush=True)
    end_session(spark)
