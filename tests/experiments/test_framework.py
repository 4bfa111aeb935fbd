"""The framework of the experiments, with a scripted one."""

import inspect
import json

import pytest
from support.every import every

from experiments import __main__ as command
from experiments.catalog import NAMES, get_experiment
from experiments.experiment import Cell, Claim, Experiment, ExperimentRequest, NotYetRun, Results, grid
from experiments.report import page, table
from experiments.store import Store
from zoo.errors import InputError


class Scripted(Experiment):
    name = "scripted"
    question = "does it grow?"
    source = "nobody 2000, table 1"
    refuted_by = "a value that falls"
    columns = {"value": ".2f", "spread": ".1f"}
    takes_data = True
    default_seeds = 2

    def __init__(self, factor=1):
        self.factor = factor
        self.measured = []

    def cells(self, request):
        return grid(request.seeds, size=(2, 3))

    def measure(self, cell, request):
        self.measured.append(str(cell))
        return {"value": self.factor * cell.settings["size"] + cell.seed / 10}

    def claims(self):
        return [
            Claim("it grows", lambda results: results.mean("value", size=3) > results.mean("value", size=2)),
            Claim("it is large", lambda results: results.mean("value") > 100, strong=False),
            Claim("it is measured in full", lambda results: True, full_only=True),
        ]

    def draw(self, results, figure):
        figure.subplots().plot(*results.line("size", "value"))


BUDGET = {"quick": False, "data": None, "steps": None}


@pytest.fixture
def scripted(monkeypatch):
    experiment = Scripted()
    monkeypatch.setattr(command, "NAMES", ("scripted",))
    monkeypatch.setattr(command, "get_experiment", lambda name: experiment)
    return experiment


def test_a_full_run(scripted, tmp_path, capsys):
    command.main(["scripted", "--workdir", str(tmp_path / "work"), "--output", str(tmp_path / "out")])
    assert scripted.measured == ["size=2, seed 1", "size=2, seed 2", "size=3, seed 1", "size=3, seed 2"]
    written = (tmp_path / "out" / "scripted.md").read_text(encoding="utf-8")
    assert "| 2 | 2.15 ± 0.07 |  |" in written and "python -m experiments scripted --seeds 2`" in written
    assert "**Confirmed**: it grows" in written and "**Not confirmed**: it is large" in written
    assert str(tmp_path) not in written
    assert (tmp_path / "out" / "scripted.svg").read_text(encoding="utf-8").count("<svg") == 1
    printed = capsys.readouterr()
    assert "confirmed: it grows" in printed.out and "4/4 size=3, seed 2" in printed.err


def test_finished_cells_are_not_measured_again(scripted, tmp_path):
    command.main(["scripted", "--quick", "--workdir", str(tmp_path)])
    results = tmp_path / "scripted.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines(keepends=True)
    results.write_text(lines[0] + lines[1][:20], encoding="utf-8")  # killed while it wrote
    scripted.measured.clear()
    command.main(["scripted", "--quick", "--workdir", str(tmp_path)])
    assert scripted.measured == ["size=3, seed 1"]
    assert results.read_text(encoding="utf-8").splitlines()[0] == lines[0].strip()
    assert (tmp_path / "scripted.md").exists() and "in full" not in (tmp_path / "scripted.md").read_text("utf-8")


def test_a_quick_run_that_refutes_ends_with_1(scripted, tmp_path, capsys):
    scripted.factor = -1
    with pytest.raises(SystemExit) as ended:
        command.main(["scripted", "--quick", "--workdir", str(tmp_path)])
    assert ended.value.code == 1 and "did not confirm a claim" in capsys.readouterr().err


def test_budgets_are_not_mixed_and_folders_are_written_to(scripted, tmp_path):
    command.main(["scripted", "--quick", "--workdir", str(tmp_path)])
    with pytest.raises(InputError, match="another budget, quick=true.*steps=null.*Received: .*steps=50.*--workdir"):
        command.main(["scripted", "--quick", "--steps", "50", "--workdir", str(tmp_path)])
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="file"):
        command.main(["scripted", "--quick", "--workdir", str(tmp_path), "--output", str(tmp_path / "file")])


def test_what_is_not_yet_run_says_so(scripted, tmp_path, capsys):
    arguments = ["scripted", "--workdir", str(tmp_path), "--output", str(tmp_path / "out")]
    command.main([*arguments, "--minutes", "0"])
    assert scripted.measured == []
    written = (tmp_path / "out" / "scripted.md").read_text(encoding="utf-8")
    assert "| 2 | not yet run |  |" in written and "**Not yet run**: it grows" in written
    assert "2/4 size=2, seed 2: not yet run" in capsys.readouterr().err
    command.main([*arguments, "--minutes", "1"])
    assert len(scripted.measured) == 4


def test_some_cells_are_not_yet_run():
    results = Results([({"size": 2}, 1, {"value": 1.0}), ({"size": 2}, 2, {}), ({"size": 3}, 1, {"value": 5.0})])
    verdicts = Scripted().verdicts(results, quick=False)
    assert [str(verdict) for verdict in verdicts] == ["Not yet run", "Not yet run", "Confirmed"]
    assert results.mean("value", size=3) == 5 and results.line("size", "value") == ([2, 3], [1.0, 5.0])
    with pytest.raises(NotYetRun):
        results.complete()
    assert results.measured().complete().rows == results.measured().rows
    assert len(results.measured().rows) == 2 and "| 2 | 1.00 |  |" in table(Scripted(), results)
    assert Results([]).mean("value") != Results([]).mean("value")
    assert "| --- |" in table(Scripted(), Results([])) and "0 seeds" in page(Scripted(), Results([]), [], [], "x", "")


def test_a_row_of_results_has_its_budget_and_commit_and_other_files_are_refused(tmp_path):
    for content in ("{}\n", "no json\n", "[1]\n", "\xff\n"):
        (tmp_path / "other.jsonl").write_bytes(content.encode("latin-1"))
        with pytest.raises(InputError, match=r"other\.jsonl"):
            Store(tmp_path / "other.jsonl", BUDGET)
    store = Store(tmp_path / "x.jsonl", BUDGET)
    store.add(Cell({"size": 2}, 5), {"value": 3}, "abc")
    assert json.loads(store.path.read_text(encoding="utf-8")) == {
        "settings": {"size": 2},
        "seed": 5,
        "budget": BUDGET,
        "metrics": {"value": 3.0},
        "commit": "abc",
    }
    assert Store(store.path, BUDGET).get(Cell({"size": 2}, 5)) == {"value": 3.0}
    assert Store(store.path, BUDGET).get(Cell({"size": 2}, 6)) is None


def test_bad_usage(scripted):
    for arguments, words in (
        (["scripted", "--seeds", "0"], "--seeds .*0"),
        (["scripted", "--steps", "-3"], "--steps .*-3"),
        (["scripted", "--minutes", "-1"], "--minutes .*-1"),
    ):
        with pytest.raises(InputError, match=words):
            command.main(arguments)


def test_data_are_not_given_to_an_experiment_that_has_its_own_nor_is_an_unknown_one_run():
    with pytest.raises(InputError, match="scaling .*--data"):
        command.main(["scaling", "--data", "dates"])
    with pytest.raises(InputError, match="'?scalling.*scaling"):
        command.main(["scalling"])


def test_all_are_listed_and_say_what_they_ask(capsys):
    command.main([])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)
    with every() as failures:
        for name in NAMES:
            with failures.of(name):
                experiment = get_experiment(name)
                assert experiment.name == name and experiment.question.endswith("?")
                assert experiment.source and experiment.refuted_by and experiment.columns
                seeds = experiment.default_seeds
                quick, full = (experiment.cells(ExperimentRequest(None, quick, seeds)) for quick in (True, False))
                assert quick and len({str(cell) for cell in full}) == len(full) >= len(quick)
                assert all(claim.strong is False or claim.text for claim in experiment.claims())
                assert experiment.setting(ExperimentRequest(None)).startswith(
                    inspect.cleandoc(type(experiment).__doc__)
                )
