"""Joey NMT's Transformer, on PyTorch."""

from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.model import build_model
from joeynmt.search import beam_search, greedy
from joeynmt.vocabulary import Vocabulary

from benchmarks.peers import pytorch
from benchmarks.peers.batches import END, FIRST, PAD, START, serve_search, serve_training

PACKAGES = ("joeynmt", "torch")
SPECIAL = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # the ids of the library


def make_vocabulary(size):
    """Returns a vocabulary of `size` tokens."""
    special = {f"{name}_token": f"<{name}>" for name in SPECIAL}
    special |= {f"{name}_id": number for name, number in SPECIAL.items()}
    options = SimpleNamespace(**special, sep_token=None, sep_id=None, lang_tags=[])
    return Vocabulary([f"w{number}" for number in range(FIRST, size)], options)


def make_model(task):
    """Returns a pre-norm Transformer with one matrix for all embeddings and the output."""
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
    # With scaled embeddings, the same initialization as that of the other contestants.
    config |= {"embed_initializer": "normal", "embed_init_weight": task["dim"] ** -0.5}
    model = build_model(config, make_vocabulary(task["vocabulary"]), make_vocabulary(task["vocabulary"]))
    model.loss_function = ("crossentropy", task["label_smoothing"])
    return model


def renumbering(task):
    """Returns the library's id of each token, int64 [V]."""
    numbers = np.arange(task["vocabulary"])
    numbers[[PAD, START, END, FIRST - 1]] = [SPECIAL[name] for name in ("pad", "bos", "eos", "unk")]
    return numbers


def train(channel):
    pytorch.prepare(channel.task)
    model, numbers = make_model(channel.task).train(), renumbering(channel.task)
    optimizer = pytorch.make_optimizer(model)

    def step(*batch):
        source, target, outputs = (torch.tensor(numbers[ids]) for ids in batch)
        source_mask, output_mask = ((ids != SPECIAL["pad"])[:, None] for ids in (source, outputs))
        loss, *_ = model(
            return_type="loss",
            src=source,
            src_length=source_mask.sum(dim=(1, 2)),
            src_mask=source_mask,
            trg_input=target,
            trg=outputs,
            trg_mask=output_mask,
        )
        loss = loss / output_mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    serve_training(channel, step, pytorch.number_of_weights(model), PACKAGES)


def search(channel):
    """Searches greedily or with a beam."""
    pytorch.prepare(channel.task)
    model, numbers, beam = make_model(channel.task).eval(), renumbering(channel.task), channel.task["beam"]

    @torch.inference_mode()
    def decode(source):
        source = torch.tensor(numbers[source])
        mask = (source != SPECIAL["pad"])[:, None]
        memory, hidden, *_ = model(return_type="encode", src=source, src_length=mask.sum(dim=(1, 2)), src_mask=mask)
        steps = source.shape[1]
        options = {"max_output_length": steps, "min_output_length": steps, "encoder_output": memory}
        options |= {"model": model, "encoder_hidden": hidden, "src_mask": mask}
        return greedy(**options)[0] if beam == 1 else beam_search(beam_size=beam, alpha=0.0, **options)[0]

    serve_search(channel, decode, pytorch.number_of_weights(model), PACKAGES, end=SPECIAL["eos"])
