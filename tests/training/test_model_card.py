"""Model cards: what they say is so, and their command trains the same model."""

import json
import re
import shlex

import pytest

import zoo
from training.config import Config, resolve
from training.model_card import command

RUNS = ("text", "dates", "labelled", "lines")


@pytest.fixture(params=RUNS)
def workdir(request):
    return request.getfixturevalue(f"{request.param}_workdir")


def read(workdir):
    config = Config.from_dict(json.loads((workdir / "config.json").read_text(encoding="utf-8")))
    return (workdir / "MODEL_CARD.md").read_text(encoding="utf-8"), config


def test_card(workdir):
    card, config = read(workdir)
    name, spec = config.model["name"], zoo.get_spec(config.model["name"])
    metrics = json.loads((workdir / "metrics.jsonl").read_text().splitlines()[-1])
    assert card.startswith(f"# {name} on {config.data.spec}\n")
    for part in (
        spec.paper.url,
        f"- Parameters: {zoo.load(workdir).model.count_params():,}\n",
        f"tokenizer: {config.data.tokenizer}, ",
        f"- Validation cross-entropy: {metrics['cross_entropy']:.4f} nats per symbol; ",
        f"\n{metrics['step']} steps of at most {config.training.batch_tokens:,} symbols",
        config.training.precision,
        "- Licence: Apache-2.0 for the code; for what was learned, as the data's\n",
        "- Intended use: ",
        "- Limits: ",
        f"keras {__import__('keras').__version__}, tensorflow ",
    ):
        assert part in card, part
    assert "None" not in card and str(workdir) not in card


def test_metrics_of_the_task(labelled_workdir, lines_workdir, text_workdir):
    for workdir, name in ((labelled_workdir, "accuracy"), (lines_workdir, "bits_per_character"), (text_workdir, "pe")):
        assert re.search(rf"nats per symbol; [^\n]*{name}", read(workdir)[0])
    card, config = read(labelled_workdir)
    assert "- Classes: animal, human, thing\n" in card and config.data.classes == ["animal", "human", "thing"]


def test_its_command_has_all_that_was_asked_for(workdir):
    """The rest follows from the data, as it did."""
    card, config = read(workdir)
    line = re.search(r"^python -m training\.train .*$", card, flags=re.MULTILINE)[0]
    assert line == command(config)
    words = shlex.split(line)
    settings = words[words.index("--set") + 1 :]
    again = resolve(words[words.index("--model") + 1], words[words.index("--data") + 1], settings)
    found, asked = config.to_dict(), again.to_dict()
    open_ = {f"{s}.{k}" for s in ("model", "data", "training") for k in asked[s] if asked[s][k] != found[s][k]}
    required = {f"model.{key}" for key in (*zoo.get_spec(config.model["name"]).required, "max_length")}
    assert open_ <= required | {"data.tokenizer", "data.shared_vocabulary", "data.classes", "model.tied_embeddings"}
