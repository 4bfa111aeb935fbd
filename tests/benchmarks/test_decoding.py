"""Decoding: contestants and targets, equal work, tables, the command."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from support.tiny_runs import write_text

from benchmarks import decoding, peers
from benchmarks.decoding import BATCH, CASES, LENGTH, REQUEST, TEST_SET, TRAINED_CASES
from benchmarks.runner import command, store
from benchmarks.runner.environments import REQUIREMENTS


def test_targets_count_those_they_are_about():
    def peers_of(case, what):
        (target,) = (target for target in CASES[case].targets if target.what == what)
        assert all(target.is_contestant(f"{name}, beam 5") for name in ("zoo", "zoo, XLA, in parts"))
        return [each.name for each in CASES[case].contestants if target.is_peer(each.label)]

    assert peers_of(REQUEST, "OpenNMT-tf and Hugging Face, beam 5") == ["OpenNMT-tf", "Hugging Face Marian"]
    assert peers_of(REQUEST, "CTranslate2, beam 5") == ["CTranslate2", "CTranslate2, in parts"]
    others = [each.name for each in decoding.PEERS]
    assert peers_of(TEST_SET, "all other peers, beam 5") == others
    assert sorted(peers_of(REQUEST, "all peers but CTranslate2, beam 5")) == sorted([*others, "KerasHub"])


def test_contestants_have_an_adapter_and_an_environment():
    folder = Path(peers.__file__).parent
    for case in (*CASES.values(), *TRAINED_CASES.values()):
        labels = [contestant.label for contestant in case.contestants]
        assert len(set(labels)) == len(labels)
        for contestant in case.contestants:
            assert contestant.work["beam"] == decoding.SEARCHES[contestant.group]
            if not contestant.name.startswith("zoo"):
                module = contestant.adapter.rpartition(".")[2].partition(":")[0]
                assert contestant.environment in REQUIREMENTS
                assert "\ndef search(channel)" in (folder / f"{module}.py").read_text(encoding="utf-8")
    assert {each.name for each in TRAINED_CASES[TEST_SET].contestants} == {"zoo", "CTranslate2"}
    assert CASES[REQUEST].groups == ["greedy", "beam 5"] and CASES[TEST_SET].groups == ["beam 5"]


def test_work_is_equal():
    def task(case):
        return case.task(case.contestants[0])

    assert task(CASES[REQUEST])["exact_length"] == LENGTH and task(CASES[REQUEST])["exact_steps"]
    assert "exact_length" not in task(CASES[TEST_SET]), "its contestants look at the ids by themselves"
    for case in TRAINED_CASES.values():
        assert "exact_length" not in task(case) and not task(case)["exact_steps"]
    from export.graph.dynamic_batching import MAX_BATCH_SIZE

    assert decoding.PART == MAX_BATCH_SIZE
    assert decoding.count_tokens([16] * BATCH) == BATCH * 16
    assert decoding.count_tokens([2] * BATCH + [7, 5]) == BATCH * 2 + 2 * 7


def _result(seconds, **last):
    return {"seconds": [seconds], "processor": [0.75], "last": last, "versions": {"numpy": "2"}}


def test_section():
    results = {
        "zoo, beam 5": {"failed": "Expected 16 tokens. Received: {5}."},
        "zoo, in parts, beam 5": _result(2.5),
        "CTranslate2, beam 5": _result(2.5),
        "KerasHub, beam 5": _result(5.0),
    }
    found = {"where": "a machine", "results": results, "fastest": {}, "tokens": 1024, "versions": ["keras 3"]}
    lines = decoding.section(CASES[REQUEST], found).splitlines()
    (row,) = (line for line in lines if line.startswith("| beam 5 | CTranslate2 |"))
    assert row.startswith("| beam 5 | CTranslate2 | 2,500 ms (2,500–2,500) | 750 ms | 410 | 1.00× as fast |")
    assert any(line.startswith("| beam 5 | zoo | not measured: Expected 16 tokens") for line in lines)
    assert any(line.startswith("| beam 5 | KerasHub | 5,000 ms") and "2.00× as fast" in line for line in lines)
    for line in (
        "| zoo against | found | target | |",
        "| CTranslate2, beam 5 | 1.00× | ≥ 1.00× | met |",
        "| all peers but CTranslate2, beam 5 | 2.00× | ≥ 2.00× | met |",
        "| OpenNMT-tf and Hugging Face, greedy | not yet measured | ≥ 2.00× |  |",
        "1,024 tokens.",
        "a machine. keras 3, numpy 2.",
    ):
        assert line in lines, line


def test_section_of_a_trained_model():
    results = {
        "zoo, greedy": _result(0.5, texts=["4", "6 6"]),
        "CTranslate2, greedy": _result(0.25, ids=[[4], [5, 5]]),
        "CTranslate2, in parts, greedy": _result(0.2, ids=[[4], [5, 5]]),
    }
    found = {"where": "a machine", "results": results, "fastest": {}}

    def decode(rows):
        return [" ".join(map(str, row)) for row in rows]

    lines = decoding.trained_section(TRAINED_CASES[REQUEST], found, decode).splitlines()
    assert "| search |  | ms | tokens/s | ratio | same answers |" in lines
    # 3 tokens and the ends of 2 sentences; against the faster one of CTranslate2's.
    assert "| greedy | zoo | 500 (500–500) | 10 | 0.40× | 1 of 2 |" in lines
    assert "| greedy | CTranslate2, in parts | 200 (200–200) | 25 |  |  |" in lines
    assert "| beam 5 | zoo | not yet measured |  |  |  |" in lines


def test_sentences_of_files_and_of_chance(tmp_path):
    file = tmp_path / "text"
    file.write_text("".join(f"{'w ' * length}\n" for length in (3, 16, 30, 15)), encoding="utf-8")
    run = SimpleNamespace(source_ids=lambda lines: [line.split() for line in lines])
    assert [len(line.split()) for line in decoding.sentences_of_file(run, file, REQUEST)] == [16, 15, 3, 30]
    assert [len(line.split()) for line in decoding.sentences_of_file(run, file, TEST_SET)] == [3, 16, 30, 15]
    file.write_text("a\nb\n" * 60, encoding="utf-8")
    assert decoding.sentences_of_file(run, file, decoding.SENTENCE) == ["a", "b"] * 20
    inputs = decoding.random_sentences(tiny=True)
    assert len(inputs.texts) == 4 and all(len(text.split()) == LENGTH - 1 for text in inputs.texts)
    inputs = decoding.read_test_split(write_text(tmp_path), tiny=True)
    assert len(inputs.texts) == BATCH // 8 and inputs.tokenizer.vocab_size > 50


def test_command(monkeypatch, tmp_path, capsys):
    asked = []

    def measured(case, spec, rounds, threads, tiny):
        asked.append((case.name, len(case.contestants), spec, rounds, threads, tiny))
        return {"where": "a machine", "results": {}, "fastest": {}, "tokens": 7}

    monkeypatch.setattr(store, "FOLDER", tmp_path)
    monkeypatch.setattr(decoding, "measure_untrained", measured)
    assert decoding.main(["--contestant", "zoo"]) == decoding.main(["--contestant", "zoo"]) == 0
    assert asked == [(REQUEST, 6, None, 15, 2, False)], "what is finished is loaded"
    assert "64 sentences of 16 tokens" in capsys.readouterr().out
    decoding.main(["--case", TEST_SET, "--data", f"text:{tmp_path}:en-de", "--tiny"])
    assert asked[1] == (TEST_SET, 7, f"text:{tmp_path}:en-de", decoding.MAX_TEST_SETS, 2, True)
    assert "Tiny sizes" in capsys.readouterr().out
    assert command.TINY.startswith("**Tiny")
    for arguments, option in (
        (["--case", TEST_SET], "--data"),
        (["runs/en-de"], "--text"),
        (["--text", "file"], "--text"),
    ):
        with pytest.raises(SystemExit):
            decoding.main(arguments)
        assert option in capsys.readouterr().err
