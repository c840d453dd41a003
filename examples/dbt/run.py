"""dbt over the tables of a lake, with dbt-spark's method `session`: docs/pipeline-dbt.md.

pip install 'headwater[spark]' dbt-core 'dbt-spark[session]'
python examples/dbt/run.py headwater-lake build            # or any other command of dbt: test, source freshness, …

The tables of the lake are only read. Models are tables of a catalog of Spark's own, in the folder ./headwater-dbt.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dbt.cli.main import dbtRunner

from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.session import end_session, make_session
from headwater.pipeline.views import register_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parent
MADE = Path("headwater-dbt")


def main(where: str, words: list[str]) -> int:
    """The status: 0 if all that dbt ran is well."""
    lake = Lake(where)
    if not lake.exists():
        print(f"there is no lake in {where}", file=sys.stderr)
        return 2
    made = MADE.absolute()
    made.mkdir(exist_ok=True)
    spark = make_session("local[*]", name="dbt", settings=catalog_in(made), log=made / "spark.log")
    try:
        show_tables(spark, lake)
        return 0 if run_dbt(words, made) else 1
    finally:
        end_session(spark)


def catalog_in(folder: Path) -> dict[str, str]:
    """Settings of a Spark that remembers between two runs which tables there are: Hive's catalog, in Derby."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'catalog'};create=true",
        "spark.driver.extraJavaOptions": "-Dfile.encoding=UTF-8 -Dderby.stream.error.file=/dev/null",
    }


def show_tables(spark: SparkSession, lake: Lake) -> None:
    """As `global_temp.NAME`, which all threads of dbt find: each table as it is now, for the whole run."""
    for name in register_views(spark, lake):
        spark.table(name).createOrReplaceGlobalTempView(name)


def run_dbt(words: list[str], made: Path, runner: dbtRunner | None = None) -> bool:
    """Whether all is well. What dbt writes for itself is in the folder `made`, not beside the project."""
    folders = {"DBT_PROJECT_DIR": PROJECT, "DBT_PROFILES_DIR": PROJECT}
    folders |= {"DBT_TARGET_PATH": made / "target", "DBT_LOG_PATH": made / "logs"}
    os.environ.update({name: str(folder) for name, folder in folders.items()})
    return (runner or dbtRunner()).invoke(words).success


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} LAKE COMMAND [OPTIONS], such as: headwater-lake build")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
