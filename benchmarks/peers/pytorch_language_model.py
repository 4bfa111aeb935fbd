"""PyTorch: a causal language model of the architecture of `causal_lm_modern`."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal attention with normalized queries and keys and rotary positions."""

    def __init__(self, task):
        super().__init__()
        dim, self.heads = task["dim"], task["heads"]
        self.projections = nn.Linear(dim, 3 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)
        self.query_norm, self.key_norm = (nn.RMSNorm(dim // self.heads, eps=1e-6) for _ in range(2))

    def forward(self, hidden, rotation):
        batch, length, dim = hidden.shape
        heads = self.projections(hidden).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = (tensor.transpose(1, 2) for tensor in heads.unbind(2))
        query, key = rotate(self.query_norm(query), rotation), rotate(self.key_norm(key), rotation)
        kinds = query.to(value.dtype), key.to(value.dtype), value
        attended = functional.scaled_dot_product_attention(*kinds, is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    """Pre-norm attention and SwiGLU."""

    def __init__(self, task):
        super().__init__()
        dim, hidden = task["dim"], task["hidden"]
        self.norms = nn.ModuleList(nn.RMSNorm(dim, eps=1e-5) for _ in range(2))
        self.attention = Attention(task)
        self.gate, self.intermediate = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.output = nn.Linear(hidden, dim, bias=False)

    def forward(self, hidden, rotation):
        hidden = hidden + self.attention(self.norms[0](hidden), rotation)
        normal = self.norms[1](hidden)
        return hidden + self.output(functional.silu(self.gate(normal)) * self.intermediate(normal))


class LanguageModel(nn.Module):
    """Embeddings, blocks, and logits by the table of the embeddings."""

    def __init__(self, task):
        super().__init__()
        self.embedding = nn.Embedding(task["vocabulary"], task["dim"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(task) for _ in range(task["layers"]))
        self.norm = nn.RMSNorm(task["dim"], eps=1e-5)
        size = task["dim"] // task["heads"]
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(task["target_length"])[:, None] * rates
        self.register_buffer("rotation", torch.stack([angles.cos(), angles.sin()]))

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, self.rotation)
        return functional.linear(self.norm(hidden), self.embedding.weight)


def rotate(heads, rotation):
    """Returns heads [B, N, T, H] with each pair of features i and i + H / 2 rotated by the angles of its position."""
    cosine, sine = rotation
    first, second = heads.float().chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
