"""Worker: Joey NMT's Transformer, on PyTorch: `python joey_nmt.py TASK`."""

from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary
from worker import END, FIRST, PAD, START, Turns

SPECIAL = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # where the library has its own


def vocabulary(size):
    """Returns a vocabulary.

    Args:
        size: Number of its symbols.
    """
    special = {f"{name}_token": f"<{name}>" for name in SPECIAL}
    special |= {f"{name}_id": number for name, number in SPECIAL.items()}
    options = SimpleNamespace(**special, sep_token=None, sep_id=None, lang_tags=[])
    return Vocabulary([f"w{number}" for number in range(FIRST, size)], options)


def make_model(task):
    """Returns a pre-norm Transformer with one matrix for all embeddings and the output.

    Args:
        task: The task.
    """
    side = {
        "type": "transformer",
        "num_layers": task["layers"],
        "num_heads": task["heads"],
        "hidden_size": task["dim"],
        "ff_size": task["hidden"],
        "dropout": task["dropout"],
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": task["dim"], "scale": True, "dropout": task["dropout"]},
    }
    config = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
    # With the scaling of the embeddings, the same start as the others'.
    config |= {"embed_initializer": "normal", "embed_init_weight": task["dim"] ** -0.5}
    model = build_model(config, vocabulary(task["vocabulary"]), vocabulary(task["vocabulary"]))
    model.loss_function = ("crossentropy", task["label_smoothing"])
    return model


def renaming(task):
    """Returns the library's number of each symbol, int64 [V].

    Args:
        task: The task.
    """
    renamed = np.arange(task["vocabulary"])
    renamed[[PAD, START, END, FIRST - 1]] = [SPECIAL[name] for name in ("pad", "bos", "eos", "unk")]
    return renamed


def make_step(task, model):
    """Returns a step of training.

    Args:
        task: The task.
        model: The model.
    """
    renamed = renaming(task)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(*batch):
        source, target, outputs = (torch.tensor(renamed[ids]) for ids in batch)
        masks = [(ids != SPECIAL["pad"])[:, None] for ids in (source, outputs)]
        loss, *_ = model(
            return_type="loss",
            src=source,
            src_length=masks[0].sum(dim=(1, 2)),
            src_mask=masks[0],
            trg_input=target,
            trg=outputs,
            trg_mask=masks[1],
        )
        loss = loss / masks[1].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main():
    """Takes part."""
    turns = Turns()
    torch.set_num_threads(turns.task["threads"])
    torch.manual_seed(0)
    model = make_model(turns.task).train()
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    turns.serve(make_step(turns.task, model), parameters, ["joeynmt", "torch"])


if __name__ == "__main__":
    main()
