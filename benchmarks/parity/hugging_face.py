"""Models of `transformers` with PyTorch, asked for logits and texts."""

from typing import Any

import numpy as np
import torch

from benchmarks.parity.reference import Rows

torch.set_num_threads(1)  # several wait for one another in a loop, where other processes need the cores


def randomized(model: Any, end: int | None = None, scale: float = 0.15, of_end: float = 3.0) -> Any:
    """Returns a model of `transformers` with random weights, of which the end is probable enough to be written."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:  # which sinusoids do not
                is_norm = "norm" in name.lower() or ".ln_" in name
                weight.copy_(torch.randn_like(weight) * scale + float(is_norm and name.endswith("weight")))
        if end is not None:
            model.get_output_embeddings().weight[end] *= of_end
    return model.eval()


@torch.no_grad()
def continued(model: Any, rows: Rows, length: int, end: int) -> list[list[int]]:
    """Returns rows as a language model continues them one by one, the most probable token each time."""
    texts = []
    for row in rows:
        ids = torch.tensor([row])
        options = {"max_length": length, "do_sample": False, "pad_token_id": end, "eos_token_id": end}
        new = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        texts.append([*row, *(i for i in new[len(row) :] if i != end)])
    return texts


@torch.no_grad()
def translated(model: Any, rows: Rows, beams: int, length: int, batch_size: int = 16) -> list[list[int]]:
    """Returns what an encoder-decoder writes for each row, padding excepted, which is never written here."""
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    found: list[list[int]] = []
    for first in range(0, len(rows), batch_size):
        batch = rows[first : first + batch_size]
        longest = max(map(len, batch))
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
        options = {"num_beams": beams, "do_sample": False, "max_length": length + 1, "bad_words_ids": [[pad]]}
        new = model.generate(input_ids=ids, attention_mask=mask, **options)[:, 1:].tolist()
        found += [row[: row.index(end)] if end in row else [i for i in row if i != pad] for row in new]
    return found


@torch.no_grad()
def causal_logits(model: Any, rows: Rows) -> list[np.ndarray]:
    """Returns the logits [T, V] of each row of a language model."""
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
def class_logits(model: Any, rows: Rows) -> list[np.ndarray]:
    """Returns the logits [C] of each row of a classifier."""
    return [model(torch.tensor([row])).logits[0].numpy() for row in rows]


@torch.no_grad()
def mean_vectors(model: Any, rows: Rows) -> list[np.ndarray]:
    """Returns the mean of the vectors of each row, of length 1, as sentence-transformers has it."""
    means = [model(torch.tensor([row])).last_hidden_state[0].mean(0) for row in rows]
    return [torch.nn.functional.normalize(mean, dim=0).numpy() for mean in means]
