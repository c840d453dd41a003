"""From a node into tables, and a few questions: as a notebook (lakehouse.ipynb), cell by cell in an editor that knows
`# %%`, or as a script. The notebook is made from the script, by scripts/notebook.py.

headwater demo --no-spark                     # a node with something in it, in another terminal
jupyter lab examples/lakehouse.ipynb          # or: python examples/lakehouse.py

NODE and LAKE in the environment say which node (http://localhost:8080) and which folder (headwater-lake).
"""

# %% What is needed
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import functions as F

from headwater.pipeline.jobs.pipeline import Pipeline, drain
from headwater.pipeline.jobs.settings import make_settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.session import end_session, make_session
from headwater.pipeline.views import register_views

url = os.environ.get("NODE", "http://localhost:8080")
folder = Path(os.environ.get("LAKE", "headwater-lake"))

# %% A Spark that knows our formats; what Java has to say goes into a file
folder.mkdir(parents=True, exist_ok=True)
spark = make_session("local[2]", log=folder / "spark.log")
if not hasattr(sys, "ps1"):  # as a script, Ctrl-C ends it at once, and Java with it; Spark's way is many lines long
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

# %% The store itself is a table, too: nothing is copied, and topics are looked for by the node
stored = spark.read.format("headwater").option("url", url).load()
print(stored.where("topic like '%/temperature'").count(), "messages of thermometers are stored")

# %% Into tables: bronze, silver, gold. What a run has brought, the next one does not bring again
settings = make_settings({"urls": [url], "deriving": {"window": 10, "lateness": 5}})
lake = Lake(folder)
with Pipeline(spark, lake, settings) as pipeline:
    drain(pipeline)

# %% Questions in SQL, over a view for each table; `document` is what came, whatever was in it
register_views(spark, lake)
spark.sql("""
    select topic, count(*) as readings, round(avg(value), 2) as mean, max(document:ts::timestamp) as last
    from silver group by topic order by topic
""").show(5, truncate=False)

# %% ... or with DataFrames: what was odd in windows that are final
gold = spark.table("gold")
print(gold.count(), "windows are final,", gold.where(F.col("flags") != "").count(), "of them are odd")

# %% Was anything lost on the way? Every position is here, once
[row] = spark.sql("""
    select count(*) as messages, count(distinct store, position) as positions, max(position) as last from bronze
""").collect()
print(f"{row.messages} messages, {row.positions} positions, the last is {row.last}")

# %% The end, of Java too
end_session(spark)
