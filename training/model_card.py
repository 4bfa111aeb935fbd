"""The model card: what a work directory holds, for whoever finds it."""

import math

import keras

from training.callbacks import RunState
from training.config import Config
from training.data import ParallelData
from zoo.registry import get_spec


def model_card(config: Config, data: ParallelData, model: keras.Model, state: RunState, metrics: dict) -> str:
    """Returns the model card of a finished run as Markdown.

    Args:
        config: The complete configuration.
        data: The data.
        model: The trained model.
        state: The run's state.
        metrics: Validation metrics of the final weights.
    """
    spec = get_spec(config.model["name"])
    sizes = ", ".join(f"{len(data.split(split).source):,} {split}" for split in ("train", "val"))
    settings = config.training
    return f"""# {spec.name} on {config.data.spec}

{spec.summary}

- Paper: [{spec.paper.title}]({spec.paper.url}) ({spec.paper.year})
- Parameters: {model.count_params():,}
- Data: `{config.data.spec}`, {sizes} pairs; {config.data.tokenizer} vocabularies of \
{config.model["source_vocab_size"]:,} and {config.model["target_vocab_size"]:,} symbols
- Training: {state.rounds * settings.eval_every:,} steps of at most {settings.batch_tokens:,} symbols, \
{state.seconds / 60:.1f} minutes, {keras.backend.backend()}, {model.dtype_policy.name}; mean of the last \
{settings.average_checkpoints} checkpoints, or the best one where it validates better
- Validation cross-entropy: {metrics["cross_entropy"]:.4f} nats per symbol (perplexity \
{math.exp(min(metrics["cross_entropy"], 30)):.2f})
- Made with: `python -m training.train --model {spec.name} --data {config.data.spec}` and the settings in `config.json`
- Limits: it knows what its training data shows, and nothing else was measured here.
"""
