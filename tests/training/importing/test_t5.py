"""T5, with one table and with gates and a table of its own for the logits: ids, logits and text of the reference."""

import numpy as np
import pytest
from support import checkpoints

import zoo
from training.importing.workdir import import_checkpoint
from zoo.checkpoints.vocabulary import arrange
from zoo.errors import InputError
from zoo.vocabulary import END, PAD, START, UNKNOWN, pad

LONGEST = 22  # symbols in an answer


class Imported:
    def __init__(self, family, path):
        import_checkpoint(f"hf:{checkpoints.FIXTURES / family}", path)
        self.run, self.expected = zoo.load(path), checkpoints.expected(family)
        size = self.expected["size"]
        self.original = arrange(size, start=0, end=1, pad=0, unknown=2).original_ids
        self.ours = {self.original[i]: i for i in reversed(range(len(self.original))) if i != START}

    def logits(self, values):
        """Returns them in the order of the reference's ids."""
        return np.asarray(values)[..., [self.ours[i] for i in range(len(self.ours))]]


@pytest.fixture(scope="module", params=["t5", "t5_gated"])
def imported(request, tmp_path_factory):
    return Imported(request.param, tmp_path_factory.mktemp("imported") / request.param)


def test_ids_are_those_of_the_reference_and_lead_back(imported):
    tokenizer, texts = imported.run.tokenizers.source, imported.expected["texts"]
    rows = tokenizer.encode(texts)
    assert [[imported.original[i] for i in row] for row in rows] == imported.expected["token_ids"]
    assert imported.original[PAD] == imported.original[START] == 0
    assert (imported.original[END], imported.original[UNKNOWN]) == (1, 2)
    assert tokenizer.decode(tokenizer.encode(["a man", "it's 25 €", ""])) == ["a man", "it's 25 €", ""]


def test_logits_are_those_of_the_reference_alone_and_with_padding(imported):
    expected, run = imported.expected, imported.run
    sources = run.source_ids(expected["sources"])
    targets = [
        [START, *(imported.ours[i] for i in row), END][: len(values)]
        for row, values in zip(expected["written"], expected["logits"], strict=True)
    ]
    padded = [pad(rows, max(map(len, rows)) + 2) for rows in (sources, targets)]
    together = imported.logits(run.model({"source": padded[0], "target": padded[1]}))
    for row, values in enumerate(expected["logits"]):
        wanted = np.array(values)
        pair = {"source": np.array([sources[row]], "int32"), "target": np.array([targets[row]], "int32")}
        alone = imported.logits(run.model(pair))[0]
        limit = 1e-4 * np.abs(wanted).max()
        assert np.abs(alone - wanted).max() <= limit
        assert np.abs(together[row, : len(wanted)] - wanted).max() <= limit


def test_answers_are_those_of_the_reference(imported):
    sources, answers = imported.expected["sources"], imported.expected["translations"]
    assert len({*answers}) > 2
    assert imported.run.translate(sources, max_length=LONGEST) == answers
    assert imported.run.translate(sources[4:5], max_length=LONGEST) == answers[4:5]


@pytest.mark.parametrize(
    ("option", "value"), [("relative_attention_num_buckets", 16), ("is_encoder_decoder", False), ("d_kv", 7)]
)
def test_options_that_we_do_not_have_are_refused(tmp_path, option, value):
    folder = checkpoints.copy("t5", tmp_path / "checkpoint")
    checkpoints.change_config(folder, **{option: value})
    with pytest.raises(InputError, match="to be imported. Received|must have the shape"):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
    assert not (tmp_path / "run").exists()
