"""How long it takes to list the models and to come to the first step."""

from benchmarks import start


def test_section():
    found = {
        "where": "a machine",
        "list_models": [0.1, 0.2, 0.3],
        "process": [0.4],
        "first_step": {"rnnsearch": {"seconds": [21.0], "processor": [18.0]}},
    }
    lines = start.section(found).splitlines()
    assert "| `import zoo` and `zoo.list_models()` | 0.20 s (0.15–0.25), 3 processes | ≤ 0.3 s | met |" in lines
    assert "| the same, with the start and the end of Python | 0.40 s (0.40–0.40), 1 processes | reported |  |" in lines
    (first,) = (line for line in lines if "rnnsearch" in line)
    assert first.endswith("21.00 s (21.00–21.00), 1 processes; processor time 18.00 s | ≤ 20.0 s | missed |")


def test_it_is_measured_in_processes(monkeypatch):
    asked = []
    monkeypatch.setattr(start, "first_step", lambda model: asked.append(model) or (3.0, 2.0))
    found = start.measure(rounds=1, first_steps=2)
    times = {"seconds": [3.0, 3.0], "processor": [2.0, 2.0]}
    assert asked == [*start.MODELS] * 2 and found["first_step"] == dict.fromkeys(start.MODELS, times)
    assert len(found["process"]) == 1 and 0 < found["list_models"][0] < found["process"][0] < 60
