"""The balance experiment: its arithmetic without any clock, and one short slice of it in real time."""

from __future__ import annotations

import csv
import inspect
import json
import os
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headwater.message import Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater_lab.cli.reproduce import reproduce as app
from headwater_lab.reproduce.balance import campaign, plan, results, written
from headwater_lab.reproduce.balance.board import Board, Clairvoyant, Slot, client_id, member_number
from headwater_lab.reproduce.balance.brokers import Told, Watched
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.driver import TrialOutcome
from headwater_lab.reproduce.balance.findings import Findings
from headwater_lab.reproduce.balance.plan import SCENARIO1, SCENARIO2, SCENARIO2_10MS, Contender, Setting, Trial
from headwater_lab.reproduce.balance.priority import take_priority
from headwater_lab.reproduce.balance.timetable import Stamp, Taken, Work, read_stamp, write_stamp
from headwater_lab.reproduce.page import markdown, marks, rich_table
from headwater_lab.reproduce.process import ProcessError

PLAIN_MEANS = (("adaptive-qos1-plain", 6.0), ("adaptive-qos1-thread", 7.0), ("clairvoyant-qos1", 2.2))
BEGIN, END = marks("balance")
FACTS = {"cpu": "a good one", "seed": "7"}


def member(number: int) -> Member:
    return Member(SimpleNamespace(client_id=client_id(number)), Subscription("t", 0, share="g"), online=True)


# ---- deadlines -------------------------------------------------------------------------------------------------


def test_a_stamp_travels_in_a_payload_of_100_bytes() -> None:
    payload = write_stamp(Stamp(7, 1.25, 1.5))
    assert len(payload) == 100
    assert read_stamp(payload) == Stamp(7, 1.25, 1.5)


def test_late_waking_does_not_add_up() -> None:
    """Ten messages wait; Python wakes 3 ms late each time: the tenth starts after nine services all the same."""
    work = Work(0, 0.025)
    end = work.begin(Stamp(0, 10.0, 10.0), now=10.001, waited=False)
    assert end == pytest.approx(10.026)
    for number in range(1, 10):
        end = work.begin(Stamp(number, 10.0, 10.0), now=end + 0.003, waited=True)
    assert work.taken[-1].start == pytest.approx(10.001 + 9 * 0.025)
    assert work.taken[-1].latency == pytest.approx(0.001 + 9 * 0.025)
    assert all(later.start - earlier.start == pytest.approx(0.025) for earlier, later in pairwise(work.taken))


def test_an_idle_member_starts_when_it_has_the_message() -> None:
    """The way to it is part of the latency."""
    work = Work(0, 0.025)
    work.begin(Stamp(0, 10.0, 10.0), now=10.0, waited=False)
    work.begin(Stamp(1, 10.1, 10.1002), now=10.1007, waited=False)
    assert work.taken[1].latency == pytest.approx(0.0007)


def test_no_message_starts_before_it_was_created() -> None:
    """One that came between the end of the work before and the member's waking."""
    work = Work(0, 0.025)
    work.begin(Stamp(0, 10.0, 10.0), now=10.0, waited=False)
    work.begin(Stamp(1, 10.0252, 10.0252), now=10.026, waited=True)
    assert work.taken[1].start == 10.0252


# ---- the clairvoyant dispatcher ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "given", "start"),
    [
        (Slot(9.0, 3, 0.025), 3, 10.0),  # it is free
        (Slot(10.02, 3, 0.025), 3, 10.02),  # it is busy
        (Slot(10.02, 3, 0.025), 5, 10.07),  # and two wait
        (Slot(9.0, 3, 0.050), 4, 10.05),  # one is on the way to it
    ],
)
def test_when_a_member_can_start(slot: Slot, given: int, start: float) -> None:
    assert slot.starts_at(given, 10.0) == pytest.approx(start)


def test_the_board_is_shared_by_all_who_open_it(tmp_path: Path) -> None:
    mine, theirs = Board(tmp_path / "board", 3), Board(tmp_path / "board", 3)
    mine.write(2, Slot(1.5, 7, 0.025))
    assert theirs.read(2) == Slot(1.5, 7, 0.025)
    assert theirs.read(1) == Slot(0.0, 0, 0.0)


def test_clairvoyant_chooses_who_can_start_first(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 3)
    members = [member(number) for number in range(3)]
    for number, free_at in enumerate((10.010, 10.004, 10.020)):
        board.write(number, Slot(free_at, 0, 0.025))
    chooser = Clairvoyant(board)
    # The slots do not change: what was given is not taken yet, and lies before the next.
    chosen = [member_number(chooser.choose(members, "t", "p", 10.0)) for _ in range(4)]
    assert chosen == [1, 0, 2, 1]
    members[1].ready = False
    members[0].ready = False
    assert member_number(chooser.choose(members, "t", "p", 10.0)) == 2


def test_clairvoyant_takes_whoever_has_been_free_for_longest(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 2)
    board.write(0, Slot(9.9, 1, 0.025))
    board.write(1, Slot(9.8, 1, 0.025))
    chooser = Clairvoyant(board)
    members = [member(0), member(1)]
    for each in members:
        chooser.taken(each, 9.0)  # which the board says they have taken
    assert chooser.choose(members, "t", "p", 10.0) is members[1]


def test_what_is_given_back_is_no_work(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 2)
    for number in range(2):
        board.write(number, Slot(9.0 + number / 10, 0, 0.025))
    chooser = Clairvoyant(board)
    members = [member(0), member(1)]
    assert chooser.choose(members, "t", "p", 10.0) is members[0]
    chooser.given_back(members[0], 1, 10.0)
    assert chooser.choose(members, "t", "p", 10.0) is members[0]


# ---- the record of what a broker was told ------------------------------------------------------------------------


def test_the_watching_dispatcher_passes_everything_on() -> None:
    events = {name for name, value in vars(Dispatcher).items() if inspect.isroutine(value) and name[0] != "_"}
    assert "reported" in events
    assert events <= vars(Watched).keys()


def test_reports_are_recorded_with_what_is_believed_then() -> None:
    record: list[Told] = []
    from headwater.routing.dispatchers.score import Score

    watched = Watched(Score(), record)
    one = member(1)
    watched.joined(one)
    for at, seconds in ((1.0, None), (2.0, 0.050), (3.0, 0.050)):
        watched.reported(one, 4, seconds, at)
    believed = [told.believed for told in record]
    assert believed == pytest.approx([0.0, 0.025, 0.1 / 3])  # the thesis's start fault
    assert record[1] == Told(2.0, 1, 4, 0.050, 0.025)


@pytest.mark.parametrize(
    ("forbidden", "got"),
    [([], "real time"), (["sched_setscheduler"], "nice -10"), (["sched_setscheduler", "setpriority"], "ordinary")],
)
def test_priority_is_taken_as_far_as_it_is_allowed(
    forbidden: list[str], got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*words: object) -> None:
        raise PermissionError

    for name in ("sched_setscheduler", "setpriority"):
        monkeypatch.setattr(os, name, forbid if name in forbidden else lambda *words: None)
    assert take_priority() == got


# ---- the plan ----------------------------------------------------------------------------------------------------


def test_as_many_messages_as_begin_within_the_time() -> None:
    contender = plan.REPORTING[0]
    assert Trial(SCENARIO2, contender, (0, 0, 0), 0.0).messages == 1443
    assert Trial(SCENARIO2_10MS, contender, (0, 0, 0), 0.0).messages == 1500


def test_quick_runs_each_setting_once_with_the_same_phases() -> None:
    planned = plan.batches(quick=True, seed=3)
    assert [{trial.setting for trial in batch} for batch in planned] == [{SCENARIO2}, {SCENARIO1, SCENARIO2_10MS}]
    assert len({trial.phases for batch in planned for trial in batch}) == 1
    for batch in planned:
        assert len({trial.offset for trial in batch}) == len(batch)
    assert plan.batches(quick=True, seed=4)[0][0].phases != planned[0][0].phases


def test_full_runs_every_dispatcher() -> None:
    from headwater.routing.shared import DISPATCHERS

    planned = plan.batches(quick=False, seed=3)
    for setting in plan.SETTINGS:
        ran = {trial.contender.name for batch in planned for trial in batch if trial.setting == setting}
        assert DISPATCHERS.keys() <= ran
    assert len({trial.phases for batch in planned for trial in batch if trial.contender.name == "adaptive"}) == 5


def test_the_thesis_gets_one_report_a_second_and_ours_early_ones() -> None:
    early = {contender.name: contender.early for contender in plan.REPORTING}
    assert not early["score"]
    assert early["adaptive"]


# ---- results -----------------------------------------------------------------------------------------------------


def result(setting: Setting, name: str, latencies_ms: list[float], lost: int = 0) -> Result:
    """A trial whose messages went to members 0, 1, 2 in turn."""
    trial = Trial(setting, Contender(name, name), (0.0, 0.0, 0.0), 0.0)
    taken = []
    for number, latency in enumerate(latencies_ms):
        created = 100.0 + number * setting.period
        start = created + latency / 1000.0
        taken.append(Taken(number, number % 3, created, created + 0.0001, start, start, False))
    told = [Told(100.5, 2, 1, 0.025, 0.025)]
    return Result(trial, TrialOutcome(100.0, taken, lost), told)


def findings() -> Findings:
    found = [
        result(setting, name, [mean - 1.0, mean + 1.0] * 600)
        for setting in plan.SETTINGS
        for name, mean in (
            ("random", 1400.0),
            ("round_robin", 1500.0),
            ("score", 30.0),
            ("score_mended", 10.0),
            ("adaptive", 4.0),
            ("clairvoyant", 2.0),
            *(() if setting is SCENARIO1 else PLAIN_MEANS),
        )
    ]
    bounds = {f"{setting.name}/bound": 1.7 for setting in plan.SETTINGS}
    return Findings(FACTS, found, bounds)


def test_names_for_programs_are_stable() -> None:
    listed = findings().records()
    reporting = ["random", "round_robin", "score", "score_mended", "adaptive", "clairvoyant"]
    plain = ["adaptive-qos1-plain", "adaptive-qos1-thread", "clairvoyant-qos1"]
    assert [each["name"] for each in listed] == [
        *(f"scenario1/{name}/mean_ms" for name in [*reporting, "bound"]),
        *(f"scenario2/{name}/mean_ms" for name in [*reporting, *plain, "bound"]),
        *(f"scenario2-10ms/{name}/mean_ms" for name in [*reporting, *plain, "bound"]),
    ]
    by_name = {each["name"]: each for each in listed}
    assert by_name["scenario2/score/mean_ms"] == {
        "name": "scenario2/score/mean_ms",
        "paper": 27.4,
        "ours": 30.0,
        "unit": "ms",
    }
    assert by_name["scenario2/random/mean_ms"]["paper"] == 1400.7
    assert by_name["scenario2/round_robin/mean_ms"]["paper"] == 1492.3
    assert by_name["scenario1/score/mean_ms"]["paper"] is None


def test_bars_hold_or_are_missed() -> None:
    held = {bar.what: bar.holds for bar in findings().bars}
    assert held == {
        "scenario2/adaptive / scenario2/clairvoyant": True,  # 2.0
        "scenario2/adaptive-qos1-plain / scenario2/clairvoyant-qos1": False,  # 2.7
        "scenario2/clairvoyant / scenario2/bound": True,
        "scenario2/clairvoyant-qos1 / scenario2/bound": True,
        "scenario1/adaptive - scenario1/round_robin (ms)": True,
    }


def test_the_bound_is_the_simulation_s() -> None:
    assert results.bound(SCENARIO2, 15.0) == pytest.approx(1.68, abs=0.01)
    assert results.bound(SCENARIO1, 15.0) == pytest.approx(0.0, abs=1e-6)


def test_phases_are_summed_up() -> None:
    trials = [result(SCENARIO2, "adaptive", [1.0] * 3), result(SCENARIO2, "adaptive", [3.0] * 3, lost=2)]
    [summary] = results.summaries(trials)
    assert summary.mean == pytest.approx(2.0)
    assert summary.means == pytest.approx((1.0, 3.0))
    assert (summary.messages, summary.lost, summary.reports) == (6, 2, 2)


def test_half_are_below_the_median_and_one_in_a_hundred_above_the_p99() -> None:
    [summary] = results.summaries([result(SCENARIO2, "adaptive", [float(value) for value in range(101)])])
    assert (summary.median, summary.p99) == pytest.approx((50.0, 99.0))


def test_steady_rows_are_of_messages_500_to_999() -> None:
    latencies = [1000.0] * 500 + [1.0, 2.0] * 250 + [1000.0] * 100
    rows = results.steady_rows(result(SCENARIO2, "score", latencies))
    assert [row.count for row in rows] == [167, 166, 167]
    assert [(round(row.least), round(row.most)) for row in rows] == [(1, 2)] * 3
    assert rows[0].mean == pytest.approx(1.5, abs=0.01)
    assert rows[0].deviation == pytest.approx(0.5, abs=0.01)


def test_noise_tells_late_sending_long_ways_and_late_waking() -> None:
    trial = Trial(SCENARIO2, Contender("adaptive", "adaptive"), (0.0, 0.0, 0.0), 0.0)
    taken = [
        Taken(0, 0, 100.0, 100.001, 100.003, 100.003, False),
        Taken(1, 0, 100.01, 100.012, 100.032, 100.028, True),  # its predecessor ended at 100.028
    ]
    got = results.noise([Result(trial, TrialOutcome(100.0, taken, 0), [])])
    assert got.sending == pytest.approx((1.5, 1.0))  # of two values, the p99 is the first
    assert got.way == pytest.approx((2.0, 2.0))
    assert got.waking == pytest.approx((4.0, 4.0))


# ---- what is written ---------------------------------------------------------------------------------------------


def test_tables_show_the_thesis_beside_ours() -> None:
    shown = "\n\n".join(markdown(table) for table in findings().tables())
    assert "| score | 27.40 | 30.00 |" in shown
    assert "| round_robin | 1492.3 | 1500.0 |" in shown
    assert "| score, thesis | 199, 1–10, 3.4 ± 2.4 | 199, 1–13, 3.7 ± 2.5 | 102, 13–71, 34.8 ± 17.8 |" in shown
    assert "| adaptive-qos1-plain |  | 6.00 |  | 5.00 | 7.00 | 2.73 |" in shown
    assert "| scenario2/adaptive-qos1-plain / scenario2/clairvoyant-qos1 | 2.73 | ≤ 2.5 | MISSED |" in shown
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    for table in findings().tables():
        console.print(rich_table(table))
    console.file.close()
    assert "34.8 ± 17.8" in console.export_text()


def test_a_folder_gets_table_figures_and_data(tmp_path: Path) -> None:
    files = {file.name for file in written.report(findings()).write(tmp_path / "out")}
    assert files == {file.name for file in (tmp_path / "out").iterdir()}
    assert {name[:10] for name in files if name.endswith(".svg")} == {f"balance-{number}" for number in range(43, 48)}
    page = (tmp_path / "out" / "balance.md").read_text()
    assert "- seed: 7" in page
    assert "![balance-47-latency-by-message](balance-47-latency-by-message.svg)" in page
    with (tmp_path / "out" / "balance-messages.csv").open() as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 24 * 1200
    assert rows[1]["created_ms"] == "10.000"
    assert float(rows[1]["start_ms"]) == pytest.approx(10.0 + 1401.0)
    assert json.loads((tmp_path / "out" / "balance.json").read_text())["trials"][0]["phases"] == [0.0, 0.0, 0.0]


def test_a_page_keeps_its_text(tmp_path: Path) -> None:
    page = tmp_path / "balance.md"
    page.write_text(f"# Mine\n\n{BEGIN}\nfrom last time\n{END}\n\nBy hand.\n")
    written.report(findings()).write(tmp_path)
    text = page.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith(f"{END}\n\nBy hand.\n")
    assert "from last time" not in text
    written.report(findings()).write(tmp_path)
    assert page.read_text() == text


def test_results_that_cannot_be_written_are_told_of_before_the_run(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["balance", "--quick", "--json", str(tmp_path / "no" / "x.json")])
    assert answer.exit_code == 1
    assert "No such file or directory" in answer.output


# ---- in real time ------------------------------------------------------------------------------------------------


def test_a_slice_in_real_time() -> None:
    """All messages of all kinds of members are counted, and reports arrive. How late they are is not a test's."""
    chosen = [each for each in (*plan.REPORTING, *plan.PLAIN) if each.dispatcher in ("adaptive", "clairvoyant")]
    trials = [Trial(SCENARIO2, each, (0.1, 0.5, 0.9), 0.001 * place, 1.5) for place, each in enumerate(chosen)]
    campaign.prepare()
    gone: list[float] = []
    got = campaign.run_batch(trials, gone.append)
    assert [each.trial for each in got] == trials
    for each in got:
        assert each.outcome.lost == 0
        assert [taken.number for taken in each.outcome.taken] == list(range(145))
        assert {taken.member for taken in each.outcome.taken} == {0, 1, 2}
        assert all(taken.latency >= 0.0 for taken in each.outcome.taken)
        assert bool(each.told) is (each.trial.contender.qos == 0)
    assert gone == sorted(gone)
    found = Findings(FACTS, got, {"scenario2/bound": 1.7})
    assert len(found.records()) == 6


def test_a_failing_child_is_told_of_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    contender = Contender("nonsense", "nonsense")
    with pytest.raises(ProcessError, match="brokers of scenario2/nonsense ended without an answer"):
        campaign.run_batch([Trial(SCENARIO2, contender, (0.0, 0.0, 0.0), 0.0, 0.1)], lambda seconds: None)


def test_without_paho_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    answer = CliRunner().invoke(app, ["balance", "--quick"])
    assert answer.exit_code == 1
    assert "pip install headwater-lab" in answer.output
