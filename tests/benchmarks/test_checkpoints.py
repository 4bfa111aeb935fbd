"""Imported checkpoints beside other software."""

from benchmarks.checkpoints import CASES, GENERATION, TRANSLATION, section
from benchmarks.runner.report import target_value

SECONDS = {"zoo": 2.0, "zoo, in parts": 1.0, "zoo, two at once": 1.0, "transformers": 3.0, "CTranslate2": 0.5}


def measured(case):
    return {
        "where": "here",
        "fastest": {},
        "results": {
            contestant.label: {"seconds": [SECONDS.get(contestant.name, 4.0)], "processor": [1.0]}
            for contestant in case.contestants
        },
    }


def test_targets_compare_the_fastest_of_each():
    found = {
        name: {target.what: target_value(case, measured(case), target) for target in case.targets}
        for name, case in CASES.items()
    }
    assert found[TRANSLATION] == {
        "transformers, greedy": 3.0,
        "transformers, beam 5": 3.0,
        "CTranslate2, greedy": 0.5,
    }
    assert found[GENERATION] == {"transformers, 1 text": 1.5, "transformers, 8 texts": 1.5}
    text = section(CASES[TRANSLATION], measured(CASES[TRANSLATION]))
    assert "| greedy | transformers | 3,000 ms (3,000–3,000) | 1,000 ms | 3.00× as fast | all in one batch |" in text
    assert "| CTranslate2, greedy | 0.50× | ≥ 0.90× | missed |" in text
