"""Logits and texts of models of `transformers` with PyTorch."""

import functools
from typing import Any

import numpy as np
import torch

from benchmarks.parity.reference import MAX_LENGTH, Reference, Rows, Vocabulary

torch.set_num_threads(1)  # in a loop several threads wait for one another where other processes use the cores


def randomized(model: Any, end: int | None = None, scale: float = 0.15, of_end: float = 3.0) -> Any:
    """Returns a model with random weights, of which the end is probable enough to be generated."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:  # which sinusoids do not
                is_norm = "norm" in name.lower() or ".ln_" in name
                weight.copy_(torch.randn_like(weight) * scale + float(is_norm and name.endswith("weight")))
        if end is not None:
            model.get_output_embeddings().weight[end] *= of_end
    return model.eval()


def reference(model: Any, task: str, vocabulary: Vocabulary, **options: Any) -> Reference:
    """Returns the reference of a model.

    Args:
        model: The model.
        task: The task of the model.
        vocabulary: Its tokenizer.
        options: Further fields of `Reference`.
    """
    if task == "seq2seq":
        options.setdefault("rules", "huggingface")
    if task in GENERATION:
        options.setdefault("max_length", MAX_LENGTH)
    options |= functions(model, task, options.get("max_length", MAX_LENGTH))
    return Reference(model.config.vocab_size, vocabulary, **options)


def functions(model: Any, task: str, max_length: int = MAX_LENGTH) -> dict[str, Any]:
    """Returns the fields `logits` and `write` of the reference of a model."""
    write = functools.partial(GENERATION[task], model, length=max_length) if task in GENERATION else None
    return {"logits": functools.partial(LOGITS[task], model), "write": write}


@torch.no_grad()
def continued(model: Any, rows: Rows, beams: int, length: int) -> list[list[int]]:
    """Returns each row with its continuation by a language model, by greedy search."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    texts = []
    for row in rows:
        ids = torch.tensor([row])
        options = {"max_length": length, "do_sample": False, "pad_token_id": ends[0]}
        new = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        texts.append([*row, *(token for token in new[len(row) :] if token not in ends)])
    return texts


@torch.no_grad()
def translated(model: Any, rows: Rows, beams: int, length: int, batch_size: int = 16) -> list[list[int]]:
    """Returns the translation of each row by an encoder-decoder that never generates padding."""
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    translations: list[list[int]] = []
    for first in range(0, len(rows), batch_size):
        batch = rows[first : first + batch_size]
        longest = max(map(len, batch))
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
        options = {"num_beams": beams, "do_sample": False, "max_length": length + 1, "bad_words_ids": [[pad]]}
        new = model.generate(input_ids=ids, attention_mask=mask, **options)[:, 1:].tolist()
        translations += [row[: row.index(end)] if end in row else [i for i in row if i != pad] for row in new]
    return translations


@torch.no_grad()
def row_logits(model: Any, rows: Rows) -> list[np.ndarray]:
    """Returns the logits of each row: [T, V] of a language model, [C] of a classifier."""
    return [model(torch.tensor([row])).logits[0].numpy() for row in rows]


@torch.no_grad()
def translator_logits(model: Any, sources: Rows, targets: Rows) -> list[np.ndarray]:
    """Returns the logits [T + 1, V] of each pair, those of the end last."""
    start = model.config.decoder_start_token_id
    return [
        model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start, *target]])).logits[0].numpy()
        for source, target in zip(sources, targets, strict=True)
    ]


@torch.no_grad()
def mean_vectors(model: Any, rows: Rows) -> list[np.ndarray]:
    """Returns the mean of the vectors of each row, scaled to length 1, like sentence-transformers."""
    means = [model(torch.tensor([row])).last_hidden_state[0].mean(0) for row in rows]
    return [torch.nn.functional.normalize(mean, dim=0).numpy() for mean in means]


LOGITS = {
    "seq2seq": translator_logits,
    "language_model": row_logits,
    "classifier": row_logits,
    "sentence_encoder": mean_vectors,
}
GENERATION = {"seq2seq": translated, "language_model": continued}
