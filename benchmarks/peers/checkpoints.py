"""Checkpoints of the hub with `transformers` and with CTranslate2, whose own converter writes its model.

The `folder` of a task contains the `checkpoint`, and `ids.json`: rows of its ids.
"""

import json
import tempfile
from pathlib import Path

from benchmarks.peers.batches import read_ids, serve_after_warm_up

TRANSFORMERS = ("transformers", "torch")


def _padded(rows, pad):
    import torch

    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def _check(lengths, expected):
    if set(lengths) != {expected}:
        raise ValueError(f"Expected {expected} tokens. Received: {sorted(set(lengths))}.")
    return {}


def _model(channel, name):
    import torch
    import transformers

    torch.set_num_threads(channel.task["threads"])
    model = getattr(transformers, name).from_pretrained(Path(channel.task["folder"]) / "checkpoint")
    return model.eval()


def _generate(channel, model, batch, steps, first, **options):
    """Generates `steps` tokens, which begin at column `first`, at each request."""
    import torch

    @torch.inference_mode()
    def generate():
        return model.generate(**batch, do_sample=False, max_new_tokens=steps, **options)[:, first:]

    serve_after_warm_up(channel, generate, lambda ids: _check([ids.shape[1]], steps), TRANSFORMERS)


def translate_with_transformers(channel):
    task, model = channel.task, _model(channel, "MarianMTModel")
    batch = _padded(read_ids(task), model.config.pad_token_id)
    _generate(channel, model, batch, task["steps"], 1, num_beams=task["beam"])


def generate_with_transformers(channel):
    task, model = channel.task, _model(channel, "GPT2LMHeadModel")
    batch = _padded(read_ids(task)[: task["texts"]], 0)
    first = batch["input_ids"].shape[1]
    _generate(channel, model, batch, task["new"], first, pad_token_id=model.config.eos_token_id)


def embed_with_transformers(channel):
    import torch

    task, model = channel.task, _model(channel, "BertModel")
    rows, size, pad = sorted(read_ids(task), key=len), task["batch"], model.config.pad_token_id
    batches = [_padded(rows[start : start + size], pad) for start in range(0, len(rows), size)]

    @torch.inference_mode()
    def embed():
        vectors = []
        for batch in batches:
            states, mask = model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
            vectors.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)))
        return torch.cat(vectors)

    serve_after_warm_up(channel, embed, lambda vectors: _check([len(vectors)], len(rows)), TRANSFORMERS)


def _converted(channel, kind, batch=0):
    """Returns the model of CTranslate2 and its tokens."""
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    task = channel.task
    threads = {"inter_threads": task["threads"], "intra_threads": 1} if batch else {"intra_threads": task["threads"]}
    with tempfile.TemporaryDirectory() as name:
        TransformersConverter(str(Path(task["folder"]) / "checkpoint")).convert(f"{name}/model")
        model = getattr(ctranslate2, kind)(f"{name}/model", device="cpu", compute_type="float32", **threads)
        file = next(path for path in Path(name, "model").iterdir() if path.name.endswith("vocabulary.json"))
        tokens = json.loads(file.read_text(encoding="utf-8"))
    return model, [[tokens[i] for i in row] for row in read_ids(task)]


def translate_with_ctranslate2(channel):
    task = channel.task
    model, rows = _converted(channel, "Translator", task["batch"])
    options = {"beam_size": task["beam"], "max_decoding_length": task["steps"], "max_batch_size": task["batch"]}

    def describe(results):
        return _check([len(result.hypotheses[0]) for result in results], task["steps"])

    serve_after_warm_up(channel, lambda: model.translate_batch(rows, **options), describe, ["ctranslate2"])


def generate_with_ctranslate2(channel):
    task = channel.task
    model, rows = _converted(channel, "Generator")
    rows = rows[: task["texts"]]
    options = {"beam_size": 1, "max_length": task["new"], "include_prompt_in_result": False}

    def describe(results):
        return _check([len(result.sequences_ids[0]) for result in results], task["new"])

    serve_after_warm_up(channel, lambda: model.generate_batch(rows, **options), describe, ["ctranslate2"])
