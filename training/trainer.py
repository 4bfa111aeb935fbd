"""The training loop: from a configuration to a work directory, over Keras `fit`."""

import json
import math
import random
import sys

import keras

from training.batching import PairBatches, for_fit
from training.callbacks import Checkpoints, Progress, Rounds, RunState, stopped_early
from training.checkpoints import checkpoint_path, list_checkpoints, load_average, restore_checkpoint
from training.config import Config, TrainingConfig
from training.data import SPLITS, ParallelData, load_data
from training.losses import SmoothedCrossEntropy, TokenCrossEntropy
from training.model_card import model_card
from training.precision import dtype_policy, use_xla
from training.schedules import WarmupSchedule
from zoo.errors import InputError
from zoo.registry import create_model
from zoo.text import END, Tokenizer, load_tokenizer, train_tokenizer
from zoo.workdir import WorkDir, replacing


def make_tokenizers(config: Config, data: ParallelData) -> tuple[Tokenizer, Tokenizer]:
    """Returns the source and target tokenizers, trained on the training split.

    Args:
        config: The configuration; `tokenizer` and `shared_vocabulary` are resolved in place.
        data: The data.
    """
    settings = config.data
    if settings.tokenizer == "auto":
        settings.tokenizer = "chars" if data.tokenizer == "chars" else "subword"
    if settings.shared_vocabulary is None:
        settings.shared_vocabulary = data.shared_vocabulary
    pairs = data.split("train")
    size = settings.vocab_size if settings.tokenizer == "subword" else None

    def learn(lines):
        return train_tokenizer(settings.tokenizer, lines, size, settings.lowercase)

    if settings.shared_vocabulary:
        shared = learn([*pairs.source, *pairs.target])
        return shared, shared
    return learn(pairs.source), learn(pairs.target)


def encode_split(
    data: ParallelData, split: str, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the ids of a split: source rows with the end symbol, target rows without.

    Args:
        data: The data.
        split: `train`, `val` or `test`.
        tokenizers: Source and target tokenizer.
        max_length: Rows are cut to this many symbols, the end included.
    """
    pairs = data.split(split)
    limit = (max_length or sys.maxsize) - 1
    source, target = tokenizers[0].encode(pairs.source), tokenizers[1].encode(pairs.target)
    cut = sum(max(len(s), len(t)) > limit for s, t in zip(source, target, strict=True))
    if cut:
        print(f"{cut} of {len(source)} pairs of the {split} split are cut at {limit + 1} symbols", file=sys.stderr)
    return [[*row[:limit], END] for row in source], [row[:limit] for row in target]


def prepare(workdir: WorkDir, config: Config, data: ParallelData) -> tuple[Tokenizer, Tokenizer]:
    """Starts a work directory: trains and saves the tokenizers, completes the configuration.

    Args:
        workdir: The work directory.
        config: The configuration, completed in place.
        data: The data.

    Raises:
        InputError: If the directory cannot be made, or the data do not suffice for a vocabulary.
    """
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{workdir.path} cannot be a work directory ({error.strerror}).") from error
    tokenizers = make_tokenizers(config, data)
    config.model |= {"source_vocab_size": tokenizers[0].vocab_size, "target_vocab_size": tokenizers[1].vocab_size}
    if not config.data.shared_vocabulary and config.model.get("tied_embeddings") == "auto":
        config.model["tied_embeddings"] = "target"
    tokenizers[0].save(workdir.source_tokenizer)
    tokenizers[1].save(workdir.target_tokenizer)
    return tokenizers


def num_rounds(settings: TrainingConfig) -> int:
    """Returns how many rounds hold the steps of a run."""
    return math.ceil(settings.max_steps / settings.eval_every)


def compile_model(config: Config) -> keras.Model:
    """Returns the model of a configuration with its optimizer and loss.

    Args:
        config: The complete configuration.
    """
    settings = config.training
    options = {key: value for key, value in config.model.items() if key != "name"}
    model = create_model(config.model["name"], dtype=dtype_policy(settings.precision), **options)
    schedule = WarmupSchedule(
        settings.learning_rate,
        settings.warmup_steps,
        settings.schedule == "inverse_sqrt",
        num_rounds(settings) * settings.eval_every,
        settings.cooldown,
    )
    optimizer = keras.optimizers.Adam(
        schedule,
        beta_2=0.98,
        epsilon=1e-9,
        global_clipnorm=settings.clip_norm or None,
    )
    model.compile(
        optimizer=optimizer,
        loss=SmoothedCrossEntropy(settings.label_smoothing),
        weighted_metrics=[TokenCrossEntropy()],
        jit_compile=use_xla(settings.jit),
    )
    return model


def fit(
    workdir: WorkDir, config: Config, model: keras.Model, batches: PairBatches, validation: PairBatches, state: RunState
):
    """Trains until the last step or the early stop, from where `state` says.

    Args:
        workdir: The work directory.
        config: The complete configuration.
        model: The compiled model.
        batches: Training batches.
        validation: Validation batches.
        state: The run's state, updated in place.
    """
    settings = config.training
    if stopped_early(state, settings.patience):
        return  # A run that was killed behind its last round.
    rounds = num_rounds(settings)
    done = state.rounds * settings.eval_every
    keep = max(settings.average_checkpoints, 1)
    callbacks = [
        Rounds(batches),
        Progress(rounds * settings.eval_every, done, batches.target_symbols),
        Checkpoints(workdir, state, settings.eval_every, keep, settings.patience),
    ]
    model.fit(
        for_fit(batches),
        validation_data=for_fit(validation),
        epochs=rounds,
        initial_epoch=state.rounds,
        callbacks=callbacks,
        verbose=0,
        shuffle=False,
    )


def finish(
    workdir: WorkDir, config: Config, model: keras.Model, validation: PairBatches, state: RunState
) -> dict[str, float]:
    """Sets the final weights and returns their validation metrics.

    They are the mean over the last checkpoints, or those of the best checkpoint where it validates better.

    Args:
        workdir: The work directory.
        config: The complete configuration.
        model: The trained model.
        validation: Validation batches.
        state: The run's state.
    """
    load_average(list_checkpoints(workdir.checkpoints)[-config.training.average_checkpoints :], model)
    metrics = model.evaluate(for_fit(validation), verbose=0, return_dict=True)
    if metrics["cross_entropy"] > state.best:
        restore_checkpoint(checkpoint_path(workdir.checkpoints, state.best_round * config.training.eval_every), model)
        metrics = model.evaluate(for_fit(validation), verbose=0, return_dict=True)
    return {name: float(value) for name, value in metrics.items()}


def save_model(workdir: WorkDir, config: Config, model: keras.Model) -> None:
    """Writes `model.keras`.

    Args:
        workdir: The work directory.
        config: The complete configuration.
        model: The model with its final weights.
    """
    options = {key: value for key, value in config.model.items() if key != "name"}
    # Precision is a matter of training; what is kept, evaluated and exported is float32.
    final = create_model(config.model["name"], dtype="float32", **options)
    final.set_weights(model.get_weights())
    with replacing(workdir.model) as temporary:
        final.save(temporary)


def _start(workdir: WorkDir, config: Config, resume: bool) -> tuple[Config, ParallelData, tuple[Tokenizer, Tokenizer]]:
    """Returns configuration, data and tokenizers of a new or resumed run."""
    if workdir.config.exists():
        if not resume:
            raise InputError(
                f"{workdir.path} holds a run already; add --resume to go on with it, or name another --workdir."
            )
        kept = Config.from_dict(workdir.read_config())
        if (kept.model["name"], kept.data.spec) != (config.model["name"], config.data.spec):
            raise InputError(
                f"{workdir.path} holds a run of {kept.model['name']} on {kept.data.spec}. "
                f"Received: {config.model['name']} on {config.data.spec}."
            )
        print("resuming with the settings that the run was begun with", file=sys.stderr)
        data = load_data(kept.data.spec)
        return kept, data, (load_tokenizer(workdir.source_tokenizer), load_tokenizer(workdir.target_tokenizer))
    data = load_data(config.data.spec)
    for split in SPLITS:
        data.split(split)  # A bad line is reported now, not behind the hours that training takes.
    return config, data, prepare(workdir, config, data)


def _restore(workdir: WorkDir, model: keras.Model) -> RunState:
    """Returns the state of the last checkpoint, with the model's variables set from it; a new state without one."""
    found = list_checkpoints(workdir.checkpoints)
    state = RunState(**restore_checkpoint(found[-1], model)) if found else RunState()
    if workdir.metrics.exists():
        # A run that was killed may have logged a round whose checkpoint it did not write.
        lines = workdir.metrics.read_text(encoding="utf-8").splitlines()[: state.rounds]
        workdir.write_text(workdir.metrics, "".join(f"{line}\n" for line in lines))
    if found:
        print(f"resuming from {found[-1].name}", file=sys.stderr)
    return state


def train(workdir: WorkDir, config: Config, resume: bool = False) -> dict[str, float]:
    """Trains a model into a work directory and returns its validation metrics.

    Args:
        workdir: The work directory.
        config: What to train, from `training.config.resolve`; a resumed run keeps the configuration it was begun with.
        resume: Whether to go on with the run that the directory holds.

    Raises:
        InputError: For bad data, or a directory that holds a run and `resume` is not set.
    """
    config, data, tokenizers = _start(workdir, config, resume)
    if workdir.model.exists():
        print(f"{workdir.path} is trained already", file=sys.stderr)
        return json.loads(workdir.metrics.read_text(encoding="utf-8").splitlines()[-1])
    # All of Keras' seeds are drawn from here. `keras.utils.set_random_seed` would import TensorFlow on every backend.
    random.seed(config.training.seed)
    model = compile_model(config)
    if not workdir.config.exists():
        # Behind all that can be wrong with data and options, because a directory with a configuration counts as a run.
        workdir.write_text(workdir.config, config.to_json())
    print(
        f"{config.model['name']} on {config.data.spec}: {model.count_params():,} parameters, vocabularies of "
        f"{tokenizers[0].vocab_size:,} and {tokenizers[1].vocab_size:,} symbols, {keras.backend.backend()}, "
        f"{model.dtype_policy.name}",
        file=sys.stderr,
    )
    state = _restore(workdir, model)
    batch = {"batch_tokens": config.training.batch_tokens, "static_shapes": model.jit_compile}
    source, target = encode_split(data, "train", tokenizers, config.data.max_length)
    batches = PairBatches(source, target, **batch, steps=config.training.eval_every, seed=config.training.seed)
    source, target = encode_split(data, "val", tokenizers)
    validation = PairBatches(source, target, **batch)
    fit(workdir, config, model, batches, validation, state)
    metrics = finish(workdir, config, model, validation, state)
    workdir.write_text(workdir.model_card, model_card(config, data, model, state, metrics))
    # Last, because a directory with a model counts as trained.
    save_model(workdir, config, model)
    return metrics
