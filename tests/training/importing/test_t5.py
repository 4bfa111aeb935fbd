"""T5, with one table and with gates and a table of its own for the logits: ids, logits and text of the reference."""

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import near, padded

import zoo
from training.importing.workdir import import_checkpoint, read_checkpoint
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families import get_family
from zoo.checkpoints.vocabulary import arrange
from zoo.vocabulary import END, PAD, START, UNKNOWN

FAMILIES = ("t5", "t5_gated")
LONGEST = 22  # tokens in an answer


class Imported:
    def __init__(self, family, path):
        _, self.run = checkpoints.imported(f"hf:{checkpoints.FIXTURES / family}", path)
        self.expected = checkpoints.expected(family)
        size = self.expected["size"]
        self.original = arrange(size, start=0, end=1, pad=0, unknown=2).original_ids
        self.ours = {self.original[i]: i for i in reversed(range(len(self.original))) if i != START}

    def logits(self, values):
        """Returns them in the order of the reference's ids."""
        return np.asarray(values)[..., [self.ours[i] for i in range(len(self.ours))]]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_logits_are_those_of_the_reference(family, tmp_path):
    imported = Imported(family, tmp_path / family)
    expected, run, original = imported.expected, imported.run, imported.original
    tokenizer = run.tokenizers.source
    assert [[original[i] for i in row] for row in tokenizer.encode(expected["texts"])] == expected["token_ids"]
    assert original[PAD] == original[START] == 0 and (original[END], original[UNKNOWN]) == (1, 2)
    assert tokenizer.decode(tokenizer.encode(["a man", "it's 25 €", ""])) == ["a man", "it's 25 €", ""]
    sources = run.source_ids(expected["sources"])
    targets = [
        [START, *(imported.ours[i] for i in row), END][: len(values)]
        for row, values in zip(expected["written"], expected["logits"], strict=True)
    ]
    together = imported.logits(run.model({"source": padded(sources), "target": padded(targets)}))
    for row, values in enumerate(expected["logits"]):
        assert near(together[row, : len(values)], values)
    alone = run.model({"source": np.array(sources[:1], "int32"), "target": np.array(targets[:1], "int32")})
    assert near(imported.logits(alone)[0], expected["logits"][0])


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_the_reference(family, tmp_path):
    imported = Imported(family, tmp_path / family)
    sources, answers = imported.expected["sources"], imported.expected["translations"]
    assert len({*answers}) > 2
    assert imported.run.translate(sources, max_length=LONGEST) == answers


def test_logits_are_scaled_as_the_file_says_by_its_old_name_or_its_new_one(tmp_path):
    folder = checkpoints.copy("t5", tmp_path / "t5")
    import_checkpoint(f"hf:{folder}", tmp_path / "run")
    model = zoo.load_model(tmp_path / "run")

    def factor(**options):
        checkpoints.change_config(folder, scale_decoder_outputs=None, tie_word_embeddings=None)
        checkpoints.change_config(folder, **options)
        weights = get_family("t5")(Checkpoint(folder)).weights(model)
        (scale,) = (value for variable, value in weights if variable is model.decoder_norm.scale)
        return float(scale[0])

    scaled = factor()
    assert factor(tie_word_embeddings=True) == factor(scale_decoder_outputs=True) == scaled
    plain = factor(tie_word_embeddings=False)
    assert plain == factor(scale_decoder_outputs=False) == pytest.approx(scaled * 8**0.5)
    # transformers 5 writes both, the older name always as true.
    assert factor(scale_decoder_outputs=False, tie_word_embeddings=True) == plain


def test_options_that_we_do_not_have_are_refused(tmp_path):
    for name, value, *words in (
        ("relative_attention_num_buckets", 16, "relative_attention_num_buckets", "16"),
        ("is_encoder_decoder", False, "is_encoder_decoder", "False"),
        ("d_kv", 7, "SelfAttention", "14"),
        ("is_gated_act", True, "is_gated_act", "True"),
        ("dense_act_fn", "gelu_new", "dense_act_fn", "gelu_new"),
    ):
        folder = checkpoints.copy("t5", tmp_path / name)
        checkpoints.change_config(folder, **{name: value})
        checkpoints.refused(f"hf:{folder}", tmp_path / "run", *words)
    folder = checkpoints.copy("t5", tmp_path / "forced")
    path = folder / "generation_config.json"
    path.write_text('{"forced_bos_token_id": 0}', encoding="utf-8")
    checkpoints.refused(f"hf:{folder}", tmp_path / "run", str(path), "forced_bos_token_id must be null", "0")
    path.write_text('{"forced_bos_token_id": null}', encoding="utf-8")
    read_checkpoint(f"hf:{folder}")
