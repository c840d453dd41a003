from __future__ import annotations

import pytest

from headwater_lab import scenarios


def test_keys_are_unique() -> None:
    for versions in ("4", "5", "both"):
        keys = [case.key for case in scenarios.all_cases(versions)]
        assert len(set(keys)) == len(keys)


def test_full_run_has_three_regimes_of_four_workloads_in_both_versions() -> None:
    keys = {case.key for case in scenarios.full()}
    for regime in ("deep", "lock", "paced"):
        for workload in ("W1", "W2", "W3", "W4"):
            assert {f"{regime}/{workload}", f"{regime}/{workload}/mqtt5"} <= keys
    assert not any(key.startswith("mid/") for key in keys)


def test_user_properties_never_run_in_version_4() -> None:
    for versions in ("4", "5", "both"):
        assert all(case.mqtt == 5 for case in scenarios.all_cases(versions) if "--user-properties" in case.options)


def test_quick_slice_names_existing_cases_and_touches_every_scenario() -> None:
    quick = scenarios.quick()
    assert len(quick) == len(scenarios._QUICK)
    left_out = {case.scenario for case in scenarios.full()} - {case.scenario for case in quick}
    assert left_out == {"subscriptions"}  # 100,000 subscriptions take too long to set up for a slice


def test_selection_by_scenario_case_and_key() -> None:
    cases = scenarios.all_cases()
    assert {case.key for case in scenarios.select(cases, ["deep/W1"])} == {"deep/W1", "deep/W1/mqtt5"}
    assert [case.key for case in scenarios.select(cases, ["deep/W1/mqtt5"])] == ["deep/W1/mqtt5"]
    assert {case.key for case in scenarios.select(cases, ["qos2"])} == {"qos2/deep", "qos2/lock"}


def test_unknown_selection_is_refused() -> None:
    with pytest.raises(ValueError, match="'depe'"):
        scenarios.select(scenarios.all_cases(), ["deep", "depe"])
