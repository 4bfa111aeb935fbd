"""Trains a small Marian with PyTorch and transformers alone, and writes it in the format of the hub.

The result is a checkpoint that other software has trained: model and training use no code of this project.
"""

import dataclasses
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.runner.command import CommandParser
from zoo.errors import InputError

PACKAGES = ("torch", "transformers", "sentencepiece")
SIDES = ("en", "de")
TOKENIZER = "marian.model"
CHECKPOINT = "training.pt"
END, UNKNOWN = 0, 1
_SAVE_SECONDS = 180.0
_REPORT_STEPS = 100
_WINDOW = 100  # batches whose sentences are sorted by length

Pairs = list[tuple[list[int], list[int]]]


@dataclass(frozen=True)
class Recipe:
    """The model and its training.

    Attributes:
        minutes: The duration of the training.
        vocab_size: Pieces of SentencePiece, of both languages together.
        layers: Layers of the encoder, and of the decoder.
        dim: Features.
        heads: Heads.
        inner: Features inside the feed-forward networks.
        dropout: The rate of dropout.
        smoothing: The share of label smoothing.
        batch_tokens: The largest number of tokens of one side of a batch, including padding.
        learning_rate: The largest learning rate.
        warmup_steps: Steps until it is reached; it then falls to zero in proportion to the remaining time.
        seed: The random seed.
    """

    minutes: float = 60.0
    vocab_size: int = 6000
    layers: int = 3
    dim: int = 256
    heads: int = 4
    inner: int = 512
    dropout: float = 0.1
    smoothing: float = 0.1
    batch_tokens: int = 1200
    learning_rate: float = 1e-3
    warmup_steps: int = 400
    seed: int = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("parity.train_marian", __doc__)
    parser.add_argument(
        "--text", type=Path, required=True, metavar="DIR", help="folder with {train,val}.en and .de, a sentence a line"
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the model; a training in it is resumed"
    )
    for field in dataclasses.fields(Recipe):
        kind = float if isinstance(field.default, float) else int
        parser.add_argument(f"--{field.name}", type=kind, default=field.default, help=f"default {field.default}")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch, default 1")
    options = vars(parser.parse_args(arguments))
    text, output, threads = (options.pop(name) for name in ("text", "output", "threads"))
    parser.require(*PACKAGES)
    for name, side in itertools.product(("train", "val"), SIDES):
        if not (text / f"{name}.{side}").is_file():
            parser.error(f"--text must contain {name}.{side}. Received: {text}")
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    output.mkdir(parents=True, exist_ok=True)
    try:
        train(text, output, Recipe(**options), threads)
    except InputError as error:
        parser.error(str(error))
    return 0


def train(text: Path, output: Path, recipe: Recipe, threads: int) -> None:
    """Trains the model until its time ends.

    Args:
        text: The folder of sentences.
        output: The folder of the model, with the state of an interrupted training, if there was one.
        recipe: The recipe, which must be that of the interrupted training.
        threads: Threads of PyTorch.
    """
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(recipe.seed)
    _write_tokenizer(text, output, recipe.vocab_size)
    pairs, held_out = (_read_pairs(text, output, name) for name in ("train", "val"))
    model = _model(recipe, output)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    step, seconds = 0, 0.0
    if (output / CHECKPOINT).is_file():
        state = torch.load(output / CHECKPOINT, weights_only=True)
        if state["recipe"] != dataclasses.asdict(recipe):
            raise InputError(f"{output} contains a training of another recipe: {state['recipe']}")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        step, seconds = state["step"], state["seconds"]
    saved = reported = seconds
    started = time.monotonic() - seconds
    losses, tokens = [], 0
    for batch in itertools.islice(_batches(pairs, recipe), step, None):
        seconds = time.monotonic() - started
        left = 1.0 - seconds / (60.0 * recipe.minutes)
        if left <= 0.0:
            break
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(step / recipe.warmup_steps, left)
        loss = _loss(model.train(), batch, recipe.smoothing)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        tokens += sum(len(target) for _, target in batch)
        if step % _REPORT_STEPS == 0:
            now = time.monotonic() - started
            print(
                f"step {step}, {now / 60:.1f} minutes: loss {sum(losses) / len(losses):.3f}, "
                f"{tokens / (now - reported):,.0f} target tokens/s",
                flush=True,
            )
            losses, tokens, reported = [], 0, now
        if seconds - saved > _SAVE_SECONDS:
            _save(model, optimizer, recipe, step, seconds, output)
            saved = seconds
    _save(model, optimizer, recipe, step, seconds, output)
    print(json.dumps({"steps": step, "minutes": round(seconds / 60, 1), "val_loss": _held_out(model, held_out)}))


def _write_tokenizer(text: Path, output: Path, vocab_size: int) -> None:
    """Writes one SentencePiece model for both languages, and the ids of its pieces in Marian's order."""
    import sentencepiece

    if (output / "tokenizer_config.json").is_file():
        return
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(str(text / f"train.{side}") for side in SIDES),
        model_prefix=str(output / "marian"),
        vocab_size=vocab_size,
        character_coverage=1.0,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(output / TOKENIZER))
    pieces = [processor.id_to_piece(index) for index in range(vocab_size) if not processor.is_control(index)]
    tokens = ["</s>", "<unk>", *(piece for piece in pieces if piece != "<unk>"), "<pad>"]
    for name in ("source", "target"):
        (output / f"{name}.spm").write_bytes((output / TOKENIZER).read_bytes())
    for name in (TOKENIZER, "marian.vocab"):
        (output / name).unlink()
    _write_json(output / "vocab.json", {token: index for index, token in enumerate(tokens)})
    _write_json(output / "tokenizer_config.json", {"source_lang": SIDES[0], "target_lang": SIDES[1]})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def _read_pairs(text: Path, output: Path, name: str) -> Pairs:
    """Returns the ids of a split, with the end after each sentence."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(output / "source.spm"))
    ids = json.loads((output / "vocab.json").read_text(encoding="utf-8"))
    sides = []
    for side in SIDES:
        lines = (text / f"{name}.{side}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        pieces = processor.encode(lines, out_type=str)
        sides.append([[*(ids.get(piece, UNKNOWN) for piece in row), END] for row in pieces])
    return list(zip(*sides, strict=True))


def _model(recipe: Recipe, output: Path) -> Any:
    from transformers import MarianConfig, MarianMTModel

    size = len(json.loads((output / "vocab.json").read_text(encoding="utf-8")))
    sizes: dict[str, int] = {}
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": recipe.layers,
            f"{side}_attention_heads": recipe.heads,
            f"{side}_ffn_dim": recipe.inner,
        }
    config = MarianConfig(
        vocab_size=size,
        d_model=recipe.dim,
        max_position_embeddings=256,
        activation_function="swish",
        scale_embedding=True,
        dropout=recipe.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=size - 1,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=size - 1,
        **sizes,
    )
    model = MarianMTModel(config)
    generation = model.generation_config
    generation.max_length, generation.num_beams, generation.bad_words_ids = 256, 5, [[size - 1]]
    return model


def _batches(pairs: Pairs, recipe: Recipe) -> Iterator[Pairs]:
    """Yields batches of pairs of similar length forever; the order depends on the seed alone."""
    chance = random.Random(recipe.seed)
    window = _WINDOW * recipe.batch_tokens // 16
    while True:
        order = chance.sample(pairs, len(pairs))
        batches = []
        for first in range(0, len(order), window):
            batch: Pairs = []
            longest = 0
            for pair in sorted(order[first : first + window], key=lambda pair: (len(pair[1]), len(pair[0]))):
                longest = max(longest, *map(len, pair))
                if batch and longest * (len(batch) + 1) > recipe.batch_tokens:
                    batches.append(batch)
                    batch, longest = [], max(map(len, pair))
                batch.append(pair)
            batches.append(batch)
        yield from chance.sample(batches, len(batches))


def _loss(model: Any, batch: Pairs, smoothing: float) -> Any:
    """Returns the mean cross-entropy of the tokens of a batch."""
    import torch

    pad = model.config.pad_token_id
    source, target = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad)
        for rows in zip(*batch, strict=True)
    )
    start = torch.full((len(batch), 1), model.config.decoder_start_token_id)
    before = torch.cat([start, target[:, :-1]], dim=1)
    logits = model(input_ids=source, attention_mask=source != pad, decoder_input_ids=before, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad, label_smoothing=smoothing
    )


def _held_out(model: Any, pairs: Pairs) -> float:
    """Returns the mean cross-entropy of a held-out split, without smoothing."""
    import torch

    total, count = 0.0, 0
    with torch.no_grad():
        for first in range(0, len(pairs), 64):
            batch = pairs[first : first + 64]
            tokens = sum(len(target) for _, target in batch)
            total, count = total + _loss(model.eval(), batch, 0.0).item() * tokens, count + tokens
    return round(total / count, 4)


def _save(model: Any, optimizer: Any, recipe: Recipe, step: int, seconds: float, output: Path) -> None:
    """Writes the model, and the state from which a training is resumed."""
    import torch

    model.save_pretrained(output)
    state = {
        "recipe": dataclasses.asdict(recipe),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "step": step,
        "seconds": seconds,
    }
    temporary = output / f".tmp-{CHECKPOINT}"
    torch.save(state, temporary)
    temporary.replace(output / CHECKPOINT)


if __name__ == "__main__":
    sys.exit(main())
