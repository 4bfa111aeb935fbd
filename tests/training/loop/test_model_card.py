"""Model cards: what they say is so, and their command trains the same model."""

import json
import re
import shlex

import keras
import pytest

import zoo
from training.config.resolve import TrainingRun, resolve
from training.config.run_config import RunConfig
from training.hardware.choice import Hardware
from training.loop.model_card import command
from training.loop.prepare import prepare
from zoo.workdir import WorkDir


def read(workdir):
    config = RunConfig.from_dict(json.loads((workdir / "config.json").read_text(encoding="utf-8")))
    return (workdir / "MODEL_CARD.md").read_text(encoding="utf-8"), config


METRICS = {"text": "perplexity", "dates": "perplexity", "labelled": "accuracy", "lines": "bits_per_character"}


@pytest.mark.parametrize("name", METRICS)
def test_card(name, request, tmp_path, monkeypatch):
    """Its command trains the same; it has nothing that the data decide anyway."""
    workdir = request.getfixturevalue(f"{name}_workdir")
    card, config = read(workdir)
    spec = config.spec
    final = json.loads((workdir / "metrics.jsonl").read_text().splitlines()[-1])
    assert card.startswith(f"# {spec.name} on {config.data.spec}\n")
    unit = "text" if spec.task == "classifier" else "token"
    for part in (
        spec.paper.url,
        f"- Parameters: {zoo.load(workdir).model.count_params():,}\n",
        f"tokenizer: {config.data.tokenizer}, ",
        f"- Validation cross-entropy: {final['cross_entropy']:.4f} nats per {unit}; ",
        f"{METRICS[name]} {final[METRICS[name]]:.4f}",
        f"\n{final['step']} steps of at most {config.training.batch_tokens:,} tokens",
        config.training.precision,
        "- Licence: Apache-2.0 for the code; the licence of the data applies to the weights\n",
        "- Intended use: ",
        "- Limits: ",
        f"keras {keras.__version__}, tensorflow ",
        *(["- Classes: animal, human, thing\n"] if name == "labelled" else []),
    ):
        assert part in card, part
    assert "None" not in card and str(workdir) not in card
    assert config.data.classes == (["animal", "human", "thing"] if name == "labelled" else None)

    monkeypatch.setattr("training.data.formats.dates.SIZES", {"train": 4000, "val": 200, "test": 200})
    line = re.search(r"^python -m training\.train .*$", card, flags=re.MULTILINE)[0]
    assert prepared(line, tmp_path).config == config
    assert "tied_embeddings" not in line and "shared_vocabulary" not in line and "max_length=13" not in line


def test_what_was_built(text_workdir, lines_workdir):
    """And not what the name would have been without settings."""
    card, config = read(text_workdir)
    changed = re.search(r"\nA `Transformer`, built like `transformer_tiny` except for (.*)\.\n", card)[1]
    assert sorted(changed.split(", ")) == [
        *("dropout=0.1 (not 0.3)", "intermediate_dim=24 (not 256)", "model_dim=16 (not 128)"),
        *("normalize_first=True (not False)", "num_heads=2 (not 4)", "num_layers=1 (not 4)"),
    ]
    assert config.spec.summary not in card
    model = zoo.load(text_workdir).model
    parts = {layer.name: (type(layer).__name__, layer.count_params()) for layer in model.layers}
    blocks = ", ".join("{} of {:,} parameters".format(*parts[name]) for name in ("encoder_block_0", "decoder_block_0"))
    assert f", {blocks}" in card
    for workdir in (text_workdir, lines_workdir):
        card, _ = read(workdir)
        sizes = re.findall(r"(?:(\d+) × )?\w+ of ([\d,]+) parameters", re.search("- Layers: .*", card)[0])
        total = sum(int(count or 1) * int(size.replace(",", "")) for count, size in sizes)
        assert total == zoo.load(workdir).model.count_params()


def prepared(words, path):
    """Returns the run that a command begins."""
    words = shlex.split(words) if isinstance(words, str) else words
    settings = words[words.index("--set") + 1 :] if "--set" in words else []
    config = resolve(words[words.index("--model") + 1], words[words.index("--data") + 1], settings)
    return prepare(WorkDir(path), TrainingRun(config), Hardware(config.training.precision, cores=config.training.cores))


ASKED = (
    ("transformer_tiny", "text", ""),
    ("transformer_tiny", "text", "data.tokenizer=chars training.jit=off"),
    ("transformer_tiny", "text", "data.shared_vocabulary=false data.vocab_size=120"),
    ("transformer_tiny", "text", "model.tied_embeddings=none training.precision=float32"),
    ("transformer_tiny", "text", "data.shared_vocabulary=false model.tied_embeddings=none data.vocab_size=120"),
    ("rnnsearch", "text", "data.tokenizer=words data.lowercase=true"),
    ("self_attention_classifier", "labelled", "data.tokenizer=chars training.seed=7"),
    ("causal_lm_tiny", "lines", "data.tokenizer=chars data.max_length=12"),
    ("causal_lm_tiny", "lines", "data.tokenizer=chars data.max_length=300 model.max_length=350"),
)


def test_a_command_has_what_was_asked_for(text_spec, labelled_spec, lines_spec, tmp_path, subtests):
    specs = {"text": text_spec, "labelled": labelled_spec, "lines": lines_spec}
    for number, (model, data, settings) in enumerate(ASKED):
        with subtests.test(f"{model} {settings}"):
            asked = ["--model", model, "--data", specs[data], *(["--set", *settings.split()] if settings else [])]
            run = prepared(asked, tmp_path / str(number))
            assert prepared(command(run), tmp_path / f"{number} again").config == run.config


def test_the_command_of_a_run_that_began_from_another(labelled_workdir, labelled_spec, tmp_path, monkeypatch):
    """It has what that one does not pass on, and is told without it."""
    settings = "training.seed=3 training.lora_rank=2 model.dropout=0.0 data.max_length=7".split()
    for given in (settings, settings[:1]):
        given = ["--set", f"training.init_from={labelled_workdir}", *given]
        asked = ["--model", "self_attention_classifier", "--data", labelled_spec, *given]
        run = prepared(asked, tmp_path / "first")
        with monkeypatch.context() as patch:
            patch.setattr("training.config.resolve.inherited_settings", None)
            line = command(run)
        assert prepared(line, tmp_path / "again").config == run.config
