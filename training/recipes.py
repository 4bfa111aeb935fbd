"""Settings that suit a model on a kind of data, where they differ from the defaults.

Measured results of each are in `training/RESULTS.md`.
"""

from typing import Any

# Peak and warm-up follow the rate of Vaswani et al. 2017, section 5.3, for d = 128 and 1000 steps of warm-up.
_TRANSFORMER = {
    "max_steps": 10000,
    "eval_every": 500,
    "batch_tokens": 2048,
    "learning_rate": 2.5e-3,
    "schedule": "inverse_sqrt",
    "warmup_steps": 1000,
    "cooldown": 0.25,
    "average_checkpoints": 3,
}
_RECURRENT = {
    "max_steps": 6000,
    "eval_every": 500,
    "batch_tokens": 2048,
    "learning_rate": 1e-3,
    # At its peak for most of the run, then down to zero: falling with 1/√step from step 500 on cost 3 BLEU.
    "schedule": "constant",
    "warmup_steps": 500,
    "cooldown": 0.25,
    "average_checkpoints": 2,
}

_RECIPES: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("transformer_tiny", "text"): {"model": {"dropout": 0.2}, "training": _TRANSFORMER},
    ("rnnsearch", "text"): {"training": _RECURRENT},
    ("transformer_tiny", "dates"): {
        "model": {"dropout": 0.1},
        "training": {
            **_TRANSFORMER,
            "max_steps": 3000,
            "eval_every": 250,
            "batch_tokens": 4096,
            "cooldown": 0.4,
            "warmup_steps": 500,
            "label_smoothing": 0.0,
            "average_checkpoints": 2,
        },
    },
    ("rnnsearch", "dates"): {
        "model": {"embedding_dim": 64, "units": 128, "attention_units": 128, "readout_units": 64, "dropout": 0.1},
        "training": {
            **_RECURRENT,
            "max_steps": 1000,
            "eval_every": 200,
            "batch_tokens": 4096,
            "cooldown": 0.4,
            "learning_rate": 3e-3,
            "schedule": "inverse_sqrt",
            "warmup_steps": 100,
            "label_smoothing": 0.0,
            "average_checkpoints": 2,
        },
    },
}


def recipe(model: str, spec: str) -> dict[str, dict[str, Any]]:
    """Returns settings by section for a model on data; empty sections where the defaults suit.

    Args:
        model: Name of the model.
        spec: Data SPEC; what stands before the first colon is its kind.
    """
    found = _RECIPES.get((model, spec.partition(":")[0]), {})
    return {section: found.get(section, {}) for section in ("model", "data", "training")}
