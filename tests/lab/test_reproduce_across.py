"""`headwater reproduce balance --cluster`: names for programs, and a slice in real time."""

from __future__ import annotations

from headwater_lab.reproduce.balance import across, campaign
from headwater_lab.reproduce.balance.across import CROSS, ONE_NODE, PER_NODE, Measured
from headwater_lab.reproduce.balance.plan import SCENARIO2, SCENARIO2_10MS


def measured(name: str, mean: float, copies: int = 1, setting: object = SCENARIO2) -> Measured:
    assert setting in (SCENARIO2, SCENARIO2_10MS)
    return Measured(
        name, SCENARIO2 if setting is SCENARIO2 else SCENARIO2_10MS, (mean,) * 10 * copies, (4, 4, 2), 10, 0
    )


def all_of(setting: object) -> list[Measured]:
    return [
        measured(ONE_NODE, 2.0, setting=setting),
        measured(CROSS, 2.5, setting=setting),
        measured("cross_round_robin", 1500.0, setting=setting),
        measured(PER_NODE, 9000.0, 3, setting),
    ]


def test_names_for_programs_are_stable() -> None:
    records = {each["name"]: each["ours"] for each in across.records([*all_of(SCENARIO2), *all_of(SCENARIO2_10MS)])}
    assert records["shared/cross_mean_ratio"] == 1.25
    assert records["shared/cross_mean_ms"] == 2.5 and records["shared/one_node_mean_ms"] == 2.0
    assert records["shared/per_node_mean_ms"] == 9000.0 and records["shared/per_node_mean_ratio"] == 4500.0
    assert records["shared/per_node_copies"] == 3.0 and records["shared/cross_copies"] == 1.0
    assert records["shared/scenario2-10ms/cross_mean_ratio"] == 1.25


def test_the_table_has_a_row_for_each_arrangement() -> None:
    report = across.report({}, all_of(SCENARIO2))
    [table] = report.tables
    assert [row[0] for row in table.rows] == [each.name for each in across.ARRANGEMENTS]


def test_a_slice_in_real_time() -> None:
    """Every message is processed once across nodes, and once at each where nodes have groups of their own."""
    gone: list[float] = []
    found = across.measure(SCENARIO2, (0.1, 0.4, 0.8), 1.0, gone.append)
    by_name = {each.name: each for each in found}
    assert all(each.lost == 0 for each in found)
    assert sum(by_name[CROSS].shares) == sum(by_name[ONE_NODE].shares) == by_name[CROSS].messages
    assert min(by_name[CROSS].shares) > 0
    assert sum(by_name[PER_NODE].shares) >= by_name[PER_NODE].messages
    assert gone and max(gone) <= campaign.PREPARATION + 1.0 + across.SETTLING + 0.1
