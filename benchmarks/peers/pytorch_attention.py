"""PyTorch: attention alone on a device, by `scaled_dot_product_attention` and by FlexAttention."""

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.peers.attention_kinds import lengths_of
from benchmarks.runner.worker import Unavailable


def slopes(task, device):
    """Returns the slope of each head of ALiBi, for a power of two of them."""
    heads = task["heads"]
    return torch.tensor([2 ** (-8 * head / heads) for head in range(1, heads + 1)], device=device)


def by_kernels(task, device, dtype):
    """Returns `scaled_dot_product_attention` as a function of query, key and value [B, N, T, H]."""
    kind, length = task["attention"], task["length"]
    if kind == "causal":
        return lambda *heads: functional.scaled_dot_product_attention(*heads, is_causal=True)
    position = torch.arange(length, device=device)
    distance = position[:, None] - position
    if kind == "padded":
        mask = (position < torch.tensor(lengths_of(task), device=device)[:, None])[:, None, None]
    elif kind == "window":
        mask = (distance >= 0) & (distance < task["window"])
    elif kind == "alibi":
        mask = (-slopes(task, device)[:, None, None] * distance).masked_fill(distance < 0, -torch.inf).to(dtype)[None]
    else:
        raise Unavailable(f"it has no {kind} attention")
    return lambda *heads: functional.scaled_dot_product_attention(*heads, attn_mask=mask)


def flexible(task, device):
    """Returns FlexAttention, compiled, as a function of query, key and value [B, N, T, H]."""
    kind, length, window = task["attention"], task["length"], task.get("window", 0)
    lengths, slope = torch.tensor(lengths_of(task), device=device), slopes(task, device)
    masks = {
        "causal": lambda batch, head, query, key: query >= key,
        "alibi": lambda batch, head, query, key: query >= key,
        "padded": lambda batch, head, query, key: key < lengths[batch],
        "window": lambda batch, head, query, key: (query >= key) & (query - key < window),
    }
    if kind not in masks:
        raise Unavailable(f"it has no {kind} attention")
    batches = task["batch"] if kind == "padded" else None
    blocks = create_block_mask(masks[kind], batches, None, length, length, device=device)
    bias = (lambda score, batch, head, query, key: score - slope[head] * (query - key)) if kind == "alibi" else None
    compiled = torch.compile(flex_attention, dynamic=False) if task["compile"] else flex_attention
    return lambda *heads: compiled(*heads, score_mod=bias, block_mask=blocks)


def make_pass(task, device):
    """Returns a function that runs a pass, forward and backward, and returns the gradients of query, key and value."""
    dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[task["precision"]]
    shape = (task["batch"], task["heads"], task["length"], task["size"])
    *inputs, direction = (torch.randn(shape, dtype=dtype, device=device) for _ in range(4))
    for tensor in inputs:
        tensor.requires_grad_()
    attend = flexible(task, device) if task["flexible"] else by_kernels(task, device, dtype)
    return lambda: torch.autograd.grad(attend(*inputs), inputs, direction)
