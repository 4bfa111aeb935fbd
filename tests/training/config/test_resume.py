"""Resuming with other settings: what may change, what may not."""

import json
import re

import pytest

from training.config.resolve import TrainingRequest, resolve, resolve_run
from training.config.resume import resume
from training.config.run_config import RunConfig
from zoo.errors import InputError
from zoo.workdir import WorkDir

TEXT = "text:data:en-de"


def resumed(*settings, step=500, kept=("training.ema=0.9", "training.precision=float32", "data.vocab_size=99")):
    """Returns the configuration of a run that goes on with settings, and the changes."""
    config = RunConfig.from_dict(resolve("transformer_tiny", TEXT, kept).to_dict())
    return resume(config, TrainingRequest(settings=settings).requested(config.spec), step, "runs/x")


MAY_CHANGE = (
    ("max_steps", 99),
    ("batch_tokens", 100),
    ("learning_rate", 0.5),
    ("schedule", "cosine"),
    ("patience", 0),
    ("average_checkpoints", 7),
    ("precision", "mixed_bfloat16"),
    ("devices", 2),
    ("weight_decay", 0.1),
)
MAY_NOT = (
    ("training.eval_every=7", "500"),
    ("training.accumulate_steps=2", "1"),
    ("training.ema=0.5", "0.9"),
    ("training.seed=5", "1"),
    ("training.precision=mixed_float16", "float32"),
    ("model.dropout=0.5", "0.2"),
    ("model.num_layers=3", "4"),
    ("data.vocab_size=77", "99"),
)


def test_what_may_change():
    for setting, value in MAY_CHANGE:
        config, changes = resumed(f"training.{setting}={value}")
        assert getattr(config.training, setting) == value
        assert changes == {f"training.{setting}": value}
        assert config.changes == ({"step": 500, f"training.{setting}": value},)
        assert RunConfig.from_dict(config.to_dict()).changes == config.changes


def test_what_may_not(subtests):
    for setting, was in MAY_NOT:
        message = f"runs/x .* {setting.partition('=')[0]}={was}, .* Received: {setting}"
        with subtests.test(setting), pytest.raises(InputError, match=message):
            resumed(setting)


def test_before_the_first_checkpoint_all_of_training_may_change():
    config, changes = resumed("training.accumulate_steps=2", "training.eval_every=7", "training.ema=0", step=0)
    assert (config.training.accumulate_steps, config.training.eval_every, config.training.ema) == (2, 7, 0)
    assert config.changes == (), "nothing was trained otherwise"
    assert set(changes) == {"training.accumulate_steps", "training.eval_every", "training.ema"}
    with pytest.raises(InputError, match=r"model\.num_layers=4"):
        resumed("model.num_layers=3", step=0)


def test_what_is_as_it_was_is_no_change():
    kept = ("training.max_steps=7", "training.precision=float32", "data.tokenizer=chars")
    asked = ("training.max_steps=7", "training.precision=auto", "data.tokenizer=auto", "model.tied_embeddings=auto")
    config, changes = resumed(*asked, kept=kept)
    assert changes == {} and config.changes == ()
    assert (config.training.precision, config.data.tokenizer) == ("float32", "chars")


def test_auto_takes_effect_in_training_but_keeps_the_precision():
    kept = ("training.jit=on", "training.precision=mixed_bfloat16")
    config, changes = resumed("training.jit=auto", "training.precision=auto", kept=kept)
    assert (config.training.jit, config.training.precision) == ("auto", "mixed_bfloat16")
    assert changes == {"training.jit": "auto"}


@pytest.fixture
def workdir(tmp_path):
    """A work directory with the configuration of a begun run."""
    workdir = WorkDir(tmp_path)
    workdir.write_text(workdir.config, resolve("transformer_tiny", TEXT).to_json())
    return workdir


def test_another_run(workdir):
    message = f"{re.escape(str(workdir.path))}.*transformer_tiny.*text:data:en-de.*transformer_tiny.*dates"
    with pytest.raises(InputError, match=message):
        resolve_run(workdir, TrainingRequest(data="dates"), resuming=True)
    assert resolve_run(workdir, TrainingRequest(), resuming=True).config == resolve("transformer_tiny", TEXT)


EDITED = (
    ("training", "max_steps", "x", "`training.max_steps`.*max_steps='x'."),
    ("training", "patience", -1, "`training.patience`.*patience=-1."),
    ("training", "momentum", 0.9, "'training.momentum'"),
    ("training", "lora_rank", 2, "training.lora_rank"),
    ("training", "loss", "gone", "'gone'.*cross_entropy.*--import"),
    ("data", "tokenizer", "bytes", "`data.tokenizer`.*tokenizer='bytes'"),
    ("model", "num_layer", 3, "transformer_tiny.*'num_layer'.*num_layers"),
)


def test_a_configuration_that_was_edited_by_hand_is_checked(workdir, subtests):
    whole = workdir.config.read_text()
    for section, key, value, message in EDITED:
        with subtests.test(f"{section}.{key}={value}"):
            values = json.loads(whole)
            values[section][key] = value
            workdir.config.write_text(json.dumps(values))
            with pytest.raises(InputError, match=message) as error:
                resolve_run(workdir, TrainingRequest(), resuming=True)
            assert str(error.value).startswith(f"{workdir.config}: ") or key == "loss"


def test_a_run_cannot_end_before_where_it_is():
    with pytest.raises(InputError, match=r"900 steps. Received: training.max_steps=300. Set .*=900"):
        resumed("training.max_steps=300", step=900)
    assert resumed("training.max_steps=500")[0].training.max_steps == 500
