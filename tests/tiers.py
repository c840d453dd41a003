"""The fast tier (`--fast`, of `./scripts/test --fast`): what needs no Java and no other broker, and kills nothing.

It is for while one works, and shows most of what can be wrong in two minutes on two cores; CI runs everything. Left
out are tests that are marked `slow`, those that borrow the process's Spark, those whose parameters name another broker,
and the files and folders below. Property tests have a tenth of their examples, and fuzzers a third of their seeds. What
is left cannot start Java or another broker: an audit hook lets it fail, with a word on why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

NOT_FAST: Final = (
    "tests/chaos",
    "tests/client/test_restarts.py",
    "tests/client/test_tls.py",
    "tests/contract/test_stores_threads.py",
    "tests/edge/test_mirror_of_a_node.py",
    "tests/fuzz/test_hostile.py",
    "tests/fuzz/test_sockets.py",
    "tests/interop",
    "tests/lab",
    "tests/makes",
    "tests/node/admin/test_serving.py",
    "tests/node/bridge/test_losses.py",
    "tests/node/bridge/test_mosquitto.py",
    "tests/node/delivery/test_opening.py",
    "tests/node/delivery/test_power_cuts.py",
    "tests/node/forwarding/test_kills.py",
    "tests/node/forwarding/test_losses.py",
    "tests/node/http/test_gate.py",
    "tests/node/http/test_process.py",
    "tests/node/persistence/test_persistence.py",
    "tests/node/persistence/test_mosquitto_db.py",
    "tests/node/proxy",
    "tests/node/mosquitto/test_bridges.py",
    "tests/node/test_run.py",
    "tests/node/transports/test_browser.py",
    "tests/node/transports/test_clients.py",
    "tests/node/transports/test_scenarios.py",
    "tests/pipeline/derive",
    "tests/pipeline/jobs",
    "tests/pipeline/lake/test_any_query.py",
    "tests/pipeline/lake/test_reading_by_spark.py",
    "tests/pipeline/lake/test_on_s3.py",
    "tests/pipeline/lake/test_upkeep.py",
    "tests/pipeline/mqtt",
    "tests/pipeline/operations",
    "tests/pipeline/source",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_connect.py",
    "tests/pipeline/test_dbt.py",
    "tests/pipeline/test_java.py",
    "tests/pipeline/test_session.py",
    "tests/test_build.py",
    "tests/test_cli.py",
    "tests/test_cli_data.py",
    "tests/test_cli_demo.py",
    "tests/test_cli_edge.py",
    "tests/test_edge_abstraction.py",
    "tests/test_edge_nodes.py",
    "tests/test_edge_tutorial.py",
    "tests/test_cli_output.py",
    "tests/test_cli_passwd.py",
    "tests/test_cli_pipeline.py",
    "tests/test_cli_pipeline_on_s3.py",
    "tests/test_proxy_page.py",
    "tests/test_cli_store.py",
    "tests/test_cli_top.py",
    "tests/test_cli_transports.py",
    "tests/test_cluster_nodes.py",
    "tests/test_examples.py",
    "tests/test_scenarios_against_mosquitto.py",
)
"""They start Java, another broker, or the command again and again, or kill it. They are not even imported."""
SPARK: Final = "one_spark"
OTHERS: Final = frozenset({"java", "mosquitto", "spark-class", "spark-submit"})
"""Programs that no test of this tier starts."""


def is_left_out(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and path.relative_to(root).as_posix() in NOT_FAST


def is_fast(item: pytest.Item) -> bool:
    if item.get_closest_marker("slow") is not None or SPARK in getattr(item, "fixturenames", ()):
        return False
    callspec = getattr(item, "callspec", None)
    return callspec is None or not any(isinstance(each, str) and each in OTHERS for each in callspec.params.values())


def select_fast(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out, and let what starts Java or another broker fail from now on."""
    left_out = [each for each in items if not is_fast(each)]
    items[:] = [each for each in items if is_fast(each)]
    config.hook.pytest_deselected(items=left_out)
    sys.addaudithook(refuse)


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        program = os.path.basename(os.fsdecode(arguments[0]))
        if program in OTHERS:
            pytest.fail(f"{program} is not for the fast tier: name this test in tests/tiers.py, or mark it slow")
