"""PyTorch: attention, and `nn.Transformer`, eager or compiled."""

import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.attention_pass import random_arrays, serve_attention, shapes
from benchmarks.peers.batches import PAD, serve_training
from benchmarks.runner.worker import Unavailable


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, sizes):
        super().__init__()
        self.attention = nn.MultiheadAttention(sizes["dim"], sizes["heads"], batch_first=True)

    def forward(self, inputs):
        return self.attention(inputs, inputs, inputs, need_weights=False)[0]


def attention_pass(function, input_shapes, half=False, device="cpu"):
    """Returns the pass of a module or a function; `half` makes weights and inputs bfloat16."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # its default, unlike TensorFlow's, excludes hyper-threads
    dtype = torch.bfloat16 if half else torch.float32
    is_module = isinstance(function, nn.Module)
    if is_module:
        function = function.to(device, dtype)
    arrays = random_arrays(input_shapes)
    inputs = [torch.tensor(array, dtype=dtype, device=device, requires_grad=True) for array in arrays]
    with torch.no_grad():
        shape = function(*inputs).shape
    direction = torch.tensor(random_arrays([shape])[0], dtype=dtype, device=device)
    sources = [*inputs, *(function.parameters() if is_module else ())]

    def run():
        gradients = torch.autograd.grad(function(*inputs), sources, direction)
        if device == "cuda":
            torch.cuda.synchronize()
        return gradients[0]

    return run


def attend(channel):
    """Runs passes of multi-head attention ("BTD") or of the scaled dot product ("BNTH") on the task's `device`."""
    on_gpu = channel.task.get("device") == "gpu" and not channel.task.get("tiny")
    if on_gpu and not torch.cuda.is_available():
        raise Unavailable("there is no GPU")

    def make_pass(sizes):
        axes = channel.task["axes"]
        function = SelfAttention(sizes) if axes == "BTD" else functional.scaled_dot_product_attention
        return attention_pass(function, shapes(sizes, axes), sizes["half"], "cuda" if on_gpu else "cpu")

    serve_attention(channel, make_pass)


def sinusoids(length, dim):
    """Returns a table of sinusoidal positions, float32 [length, dim] (Vaswani et al. 2017, section 3.5)."""
    rates = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    angles = np.arange(length)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, dim).astype("float32")


class Translator(nn.Module):
    """Pre-norm encoder and decoder with one matrix for all embeddings and the output."""

    def __init__(self, task):
        super().__init__()
        dim, rate, layers = task["dim"], task["dropout"], task["layers"]
        self.embedding = nn.Embedding(task["vocabulary"], dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.register_buffer("positions", torch.tensor(sinusoids(task["source_length"] + task["target_length"], dim)))
        self.dropout = nn.Dropout(rate)
        sizes = (dim, task["heads"], layers, layers, task["hidden"])
        self.transformer = nn.Transformer(*sizes, rate, batch_first=True, norm_first=True)
        self._drop_like_others()
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(task["target_length"]))

    def _drop_like_others(self):
        """Restricts dropout to the outputs of sublayers: none of attention weights and within feed-forward networks."""
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout = nn.Identity()
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0

    def _embed(self, ids):
        scaled = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(scaled + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        padding = source == PAD
        hidden = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=self.causal[: target.shape[1], : target.shape[1]],
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return functional.linear(hidden, self.embedding.weight)


def make_optimizer(model):
    """Returns the optimizer of the PyTorch contestants."""
    return torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)


def number_of_weights(model):
    """Returns the number of trainable parameters."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def make_training(task, model, device="cpu"):
    """Returns a training step of a module from inputs to logits.

    Its arguments are tensors, first the inputs and then the outputs to predict; it returns the loss as a tensor,
    without waiting for the device.
    """
    optimizer = make_optimizer(model)

    def loss_of(*tensors):
        *inputs, outputs = tensors
        logits = model(*inputs).flatten(0, 1)
        smoothing = task["label_smoothing"]
        return functional.cross_entropy(logits, outputs.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    if task["compile"]:
        loss_of = torch.compile(loss_of)

    def step(*tensors):
        with torch.autocast(device, torch.bfloat16, enabled=task["precision"] == "bfloat16"):
            loss = loss_of(*tensors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def as_tensors(batch, device="cpu"):
    """Returns arrays of tokens as tensors."""
    return [torch.tensor(ids, dtype=torch.long, device=device) for ids in batch]


def make_step(task, model):
    """Returns a training step, from arrays to a number, of a module from source and target to logits."""
    train = make_training(task, model)
    return lambda *batch: train(*as_tensors(batch)).item()


def prepare(task):
    """Sets threads and seed."""
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)


def train(channel, model_class=Translator, packages=("torch",)):
    """Trains a model of `model_class`, whose argument is the task."""
    prepare(channel.task)
    model = model_class(channel.task).train()
    serve_training(channel, make_step(channel.task, model), number_of_weights(model), packages)
