"""Worker: PyTorch's `nn.Transformer`, eager or compiled: `python pytorch.py TASK`."""

import torch
from torch import nn
from torch.nn import functional
from worker import PAD, Turns, sinusoids


class Translator(nn.Module):
    """Pre-norm encoder and decoder with one matrix for all embeddings and the output.

    Args:
        task: The task.
    """

    def __init__(self, task):
        super().__init__()
        dim, rate = task["dim"], task["dropout"]
        self.embedding = nn.Embedding(task["vocabulary"], dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.register_buffer("positions", torch.tensor(sinusoids(task["source_length"] + task["target_length"], dim)))
        self.dropout = nn.Dropout(rate)
        self.transformer = nn.Transformer(
            dim,
            task["heads"],
            task["layers"],
            task["layers"],
            task["hidden"],
            rate,
            batch_first=True,
            norm_first=True,
        )
        self._drop_as_the_others()
        causal = nn.Transformer.generate_square_subsequent_mask(task["target_length"])
        self.register_buffer("causal", causal)

    def _drop_as_the_others(self):
        """Drops the results of parts alone, not the attention weights nor what is within the feed-forward networks."""
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


def make_step(task, model):
    """Returns a step of training.

    Args:
        task: The task.
        model: Module from source and target to logits.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def loss_of(source, target, outputs):
        logits = model(source, target).flatten(0, 1)
        smoothing = task["label_smoothing"]
        return functional.cross_entropy(logits, outputs.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    if task["compile"]:
        loss_of = torch.compile(loss_of)

    def step(*batch):
        source, target, outputs = (torch.tensor(ids, dtype=torch.long) for ids in batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=task["precision"] == "bfloat16"):
            loss = loss_of(source, target, outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def serve(make_model, packages):
    """Takes part with a PyTorch model.

    Args:
        make_model: From task to module.
        packages: Names of the distributions whose versions count.
    """
    turns = Turns()
    torch.set_num_threads(turns.task["threads"])
    torch.manual_seed(0)
    model = make_model(turns.task).train()
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    turns.serve(make_step(turns.task, model), parameters, packages)


if __name__ == "__main__":
    serve(Translator, ["torch"])
