"""The benchmark's report: verdicts, exit codes, what is chosen, what fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulations.bench import __main__ as bench
from simulations.bench import picture
from simulations.bench.goals import GOALS
from simulations.bench.measurements import MEASUREMENTS, Found, Measurement
from simulations.bench.report import Report, Row, as_json, as_text
from simulations.bench.setting import Setting

BY_NAME = {goal.name: goal for goal in GOALS}


def gives(name: str, value: float, *, is_short: bool = True) -> Measurement:
    def run(_: Setting) -> Found:
        return [Row(name, value, "10 ms", "20 ms")], {"L1: restore, ms": 3.5}

    return Measurement(f"what gives {name}", (name,), run, is_short)


def fails(_: Setting) -> Found:
    raise RuntimeError("no disk")


def test_each_row_has_one_goal_and_is_measured_once() -> None:
    measured = [name for each in MEASUREMENTS for name in each.names]
    assert sorted(measured) == sorted(BY_NAME)
    assert len(GOALS) == len(BY_NAME)
    assert {f"R{number}" for number in range(1, 13)} <= set(BY_NAME)
    assert all(goal.against for goal in GOALS)


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("R1", 80.0, "goal"),
        ("R1", 79.9, "floor"),
        ("R1", 39.9, "BELOW"),
        ("R10", 1.05, "goal"),
        ("R10", 1.1, "floor"),
        ("R10", 1.11, "BELOW"),
    ],
)
def test_the_verdict_goes_by_floor_and_goal(name: str, value: float, verdict: str) -> None:
    assert BY_NAME[name].verdict(value) == verdict


def test_what_fails_is_told_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Measurement("a disk", ("R7",), fails)
    report = bench.measure([broken, gives("R1", 90)], (), is_quick=False)
    assert report.missed == ["R7"]
    assert report.rows["R1"].value == 90
    text = as_text(report, {"cores": 2})
    assert "RuntimeError: no disk" in text
    assert "rows missed: R7" in text
    told = capsys.readouterr().err
    assert "[1/2, 0 s] measuring a disk" in told
    assert "RuntimeError: no disk" in told


def test_a_quick_run_leaves_out_what_is_long_unless_it_is_asked_for() -> None:
    known = [gives("R1", 90), gives("R2c", 1, is_short=False)]
    quick = bench.measure(known, (), is_quick=True)
    assert [*quick.rows] == ["R1"]
    assert quick.verdict(BY_NAME["R2c"]) == "not measured"
    assert quick.missed == []
    asked = bench.measure(known, ("R2c",), is_quick=True)
    assert asked.missed == ["R2c"]
    assert [*asked.rows] == ["R2c"]


@pytest.mark.parametrize(("value", "code"), [(90.0, 0), (50.0, 0), (39.0, 1)])
def test_the_exit_code_is_1_where_a_floor_is_missed(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "MEASUREMENTS", [gives("R1", value)])
    monkeypatch.setattr(bench, "MODEL_DIR", Path(__file__).parent)
    assert bench.main(["--json", "--only", "R1"]) == code
    told = json.loads(capsys.readouterr().out)
    (row,) = (row for row in told["rows"] if row["name"] == "R1")
    keys = ("what", "ours", "other", "against", "value", "floor", "goal", "verdict")
    assert all(row[key] is not None for key in keys)
    assert told["missed"] == ["R1"] * code


def test_an_unknown_row_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--only", "R1,R99"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "no such row: R99; there are R1,R2" in told


def test_a_report_is_written_with_pictures_where_there_is_something_to_draw_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "MEASUREMENTS", [gives("R1", 90), gives("R4", 1.5)])
    monkeypatch.setattr(bench, "MODEL_DIR", Path(__file__).parent)
    assert bench.main(["--report", str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert (tmp_path / "new" / "report.txt").read_text(encoding="utf-8") == out
    assert json.loads((tmp_path / "new" / "report.json").read_text(encoding="utf-8"))["rows"]
    pictures = sorted(path.name for path in (tmp_path / "new").glob("*.png"))
    assert pictures in ([], ["first_token.png", "rows.png"])
    assert ("matplotlib is not installed" in err) == (not pictures)


def test_how_many_times_as_good_as_the_floor_asks_for() -> None:
    assert picture.times_floor(BY_NAME["R1"], 80) == 2
    assert picture.times_floor(BY_NAME["R12"], 75) == 2
    for goal in GOALS:
        assert picture.times_floor(goal, goal.goal) >= 1, goal.name


def test_a_report_of_nothing_is_whole() -> None:
    report = Report(GOALS, is_quick=True)
    assert report.missed == []
    assert "not measured" in as_text(report, {})
    assert json.loads(as_json(report, {}))["missed"] == []
