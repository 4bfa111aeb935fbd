"""Recurrent translators with attention, written plainly in PyTorch."""

import torch
from torch import nn

from benchmarks.peers import pytorch
from benchmarks.peers.batches import PAD


class AdditiveAttention(nn.Module):
    """`Σ_j softmax_j(v · tanh(W s + U h_j)) h_j` (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, state_size, memory_size, units):
        super().__init__()
        self.of_state, self.of_memory = nn.Linear(state_size, units), nn.Linear(memory_size, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, state, memory, keys, padding):
        scores = self.score(torch.tanh(keys + self.of_state(state)[:, None]))[..., 0]
        weights = torch.softmax(scores.masked_fill(padding, float("-inf")), dim=-1)
        return torch.einsum("bs,bsd->bd", weights, memory)


class RNNSearch(nn.Module):
    """A bidirectional GRU, and a GRU that attends before each of its steps, with a maxout readout."""

    def __init__(self, task):
        super().__init__()
        size, units = task["vocabulary"], task["units"]
        self.source, self.target = nn.Embedding(size, units), nn.Embedding(size, units)
        self.dropout = nn.Dropout(task["dropout"])
        self.encoder = nn.GRU(units, units, batch_first=True, bidirectional=True)
        self.start = nn.Linear(units, units)
        self.attention = AdditiveAttention(units, 2 * units, units)
        self.cell = nn.GRUCell(3 * units, units)
        self.readout = nn.Linear(4 * units, 2 * units)
        self.output = nn.Linear(units, size)

    def forward(self, source, target):
        padding = source == PAD
        memory, last = self.encoder(self.dropout(self.source(source)))
        state = torch.tanh(self.start(last[1]))
        memory = self.dropout(memory)
        keys, embedded, outputs = self.attention.of_memory(memory), self.dropout(self.target(target)), []
        for step in range(target.shape[1]):
            context = self.attention(state, memory, keys, padding)
            outputs.append(torch.cat([state, context], dim=-1))
            state = self.cell(torch.cat([embedded[:, step], context], dim=-1), state)
        hidden = self.readout(torch.cat([torch.stack(outputs, dim=1), embedded], dim=-1))
        hidden = hidden.unflatten(-1, (-1, 2)).amax(dim=-1)
        return self.output(self.dropout(hidden))


class Luong(nn.Module):
    """Stacked LSTMs; the decoder attends with its new state, and reads the attentional vector at its next step."""

    def __init__(self, task):
        super().__init__()
        size, units, layers, rate = task["vocabulary"], task["units"], task["layers"], task["dropout"]
        self.source, self.target = nn.Embedding(size, units), nn.Embedding(size, units)
        nn.init.normal_(self.target.weight, std=units**-0.5)
        self.dropout = nn.Dropout(rate)
        self.encoder = nn.LSTM(units, units, layers, batch_first=True, dropout=rate)
        sizes = [2 * units, *[units] * (layers - 1)]
        self.cells = nn.ModuleList(nn.LSTMCell(inputs, units) for inputs in sizes)
        self.score = nn.Linear(units, units, bias=False)
        self.combine = nn.Linear(2 * units, units, bias=False)

    def forward(self, source, target):
        padding = source == PAD
        memory, (hidden, inner) = self.encoder(self.dropout(self.source(source.flip(1))))
        memory = self.dropout(memory.flip(1))
        states, keys = list(zip(hidden, inner, strict=True)), self.score(memory)
        embedded, outputs, fed = self.dropout(self.target(target)), [], torch.zeros_like(hidden[0])
        for step in range(target.shape[1]):
            state = torch.cat([embedded[:, step], fed], dim=-1)
            for number, cell in enumerate(self.cells):
                states[number] = cell(state if number == 0 else self.dropout(state), states[number])
                state = states[number][0]
            scores = torch.einsum("bd,bsd->bs", state, keys).masked_fill(padding, float("-inf"))
            context = torch.einsum("bs,bsd->bd", torch.softmax(scores, dim=-1), memory)
            fed = torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
            outputs.append(fed)
        return nn.functional.linear(self.dropout(torch.stack(outputs, dim=1)), self.target.weight)


MODELS = {"rnnsearch": RNNSearch, "luong": Luong}


def train(channel):
    pytorch.train(channel, MODELS[channel.task["network"]])
