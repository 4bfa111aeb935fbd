"""Measures the speed of imported checkpoints as SavedModels, beside `transformers` and CTranslate2.

`python -m benchmarks.checkpoints --pretrained DIR [--case NAME …] [--contestant NAME …] [--rounds N] [--tiny]`

Checkpoints have the sizes of public ones, real tokenizers from the folder DIR, and random weights that never generate
the end, so that all take the same number of steps. `translation` is OPUS-MT's 6 + 6 layers, `embedding` MiniLM's
vectors of 1,000 sentences, `generation` GPT-2's 124 million weights. `transformers`, `torch` and `ctranslate2` run in
this environment; a contestant whose package is missing does not take part.
"""

import dataclasses
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.decoding import BATCH, PART, SEARCHES, column_of_ratios, columns_of_times, our_versions
from benchmarks.runner.case import Case, Contestant, Target, in_groups
from benchmarks.runner.command import MeasurementParser, Report, load_or_measure_case
from benchmarks.runner.measure import Result, measure
from benchmarks.runner.report import Column, case_section

TRANSLATION, EMBEDDING, GENERATION = "translation", "embedding", "generation"
WORDS, STEPS = 15, 24  # words of a sentence, and tokens that translators write
SENTENCES, NEW = 1000, 128  # sentences to embed, and tokens that language models write
PROMPTS = {"1 text": 1, "8 texts": 8}
METHOD = (
    "Checkpoints of the sizes of public ones with random weights, float32; ours is the SavedModel, text to text, the"
    " others read ids of tokens. No text ends before its last step. Median of {rounds} turns A B A B (quartiles);"
    " {threads} threads each, every contestant in a process of its own."
)
_OURS = {"variables": {"TF_ENABLE_ONEDNN_OPTS": "0"}}


def _ours(name: str, export: str, note: str, **work: Any) -> Contestant:
    adapter = "benchmarks.zoo_adapter:answer_with_checkpoint"
    return Contestant(name, adapter, {"export": export, **work}, note=note, **_OURS)


def _theirs(name: str, function: str, note: str, **work: Any) -> Contestant:
    return Contestant(name, f"benchmarks.peers.checkpoints:{function}", work, note=note)


def _targets(groups: Sequence[str], *targets: tuple[str, float]) -> tuple[Target, ...]:
    return tuple(
        Target(f"{peer}, {group}" if group else peer, (f"zoo*{group}",), (f"{peer}*{group}",), bound)
        for group in groups
        for peer, bound in targets
    )


CASES = {
    TRANSLATION: Case(
        TRANSLATION,
        f"OPUS-MT: 6 + 6 layers, D 512, inside 2,048, 8 heads; {BATCH} sentences, {STEPS} steps",
        in_groups(
            (
                _ours("zoo", "whole", "all in one batch"),
                _ours("zoo, in parts", "parts", f"parts of {PART} sentences with a thread each"),
                _theirs("transformers", "translate_with_transformers", "all in one batch"),
                _theirs("CTranslate2", "translate_with_ctranslate2", "all in one batch", batch=0),
                _theirs("CTranslate2, in parts", "translate_with_ctranslate2", "parts with a thread each", batch=PART),
            ),
            "beam",
            SEARCHES,
        ),
        _targets(["greedy", "beam 5"], ("transformers", 2.0)) + _targets(["greedy"], ("CTranslate2", 0.9)),
        warm_up=1,
    ),
    EMBEDDING: Case(
        EMBEDDING,
        f"MiniLM: 6 layers, D 384, 12 heads; vectors of {SENTENCES:,} sentences in batches of {PART}",
        (
            _ours("zoo", "whole", "batch after batch"),
            _ours("zoo, two at once", "whole", "a batch on each core", parallel=True),
            _theirs("transformers", "embed_with_transformers", "batch after batch; mean of the vectors, of length 1"),
        ),
        _targets([""], ("transformers", 1.0)),
        warm_up=1,
    ),
    GENERATION: Case(
        GENERATION,
        f"GPT-2: 12 layers, D 768, 12 heads, 124 million weights; {NEW} tokens after {WORDS}, greedy",
        in_groups(
            (
                _ours("zoo", "whole", ""),
                _theirs("transformers", "generate_with_transformers", ""),
                _theirs("CTranslate2", "generate_with_ctranslate2", ""),
            ),
            "texts",
            PROMPTS,
        ),
        _targets(list(PROMPTS), ("transformers", 1.0)),
        warm_up=1,
    ),
}


def write_marian(pretrained: Path, folder: Path, tiny: bool) -> None:
    """Writes an OPUS-MT checkpoint with random weights, whose end is never generated."""
    from transformers import MarianConfig, MarianMTModel

    from benchmarks.parity.vocabularies import copy_tokenizer

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1} if tiny else {}
    config = {**copy_tokenizer(pretrained, "opus-mt-en-pt", folder), **sizes, "forced_eos_token_id": None}
    model = MarianMTModel(MarianConfig(**config))
    model.final_logits_bias[:, model.config.eos_token_id] = -1e4
    model.save_pretrained(folder)


def write_minilm(pretrained: Path, folder: Path, tiny: bool) -> None:
    """Writes a checkpoint of sentence-transformers with random weights."""
    from transformers import BertConfig, BertModel

    from benchmarks.parity.vocabularies import copy_tokenizer

    sizes = {"num_hidden_layers": 1} if tiny else {}
    BertModel(BertConfig(**{**copy_tokenizer(pretrained, "all-minilm-l6-v2", folder), **sizes})).save_pretrained(folder)


def write_gpt2(pretrained: Path, folder: Path, tiny: bool) -> None:
    """Writes a GPT-2 with random weights, whose end is never the most probable token."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from benchmarks.parity.vocabularies import gpt2_vocabulary

    tokenizer = gpt2_vocabulary(pretrained)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(pretrained / "gpt2" / name, folder)
    end = tokenizer.token_to_id("<|endoftext|>")
    sizes = {"n_embd": 24, "n_layer": 1} if tiny else {}
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=end, eos_token_id=end, **sizes))
    with torch.no_grad():
        model.transformer.wte.weight[end] = 0.0  # about half of the 50,257 logits are positive
    model.save_pretrained(folder)


WRITERS: dict[str, Callable[[Path, Path, bool], None]] = {
    TRANSLATION: write_marian,
    EMBEDDING: write_minilm,
    GENERATION: write_gpt2,
}


def random_texts(run: Any, count: int) -> list[str]:
    """Returns texts of words of one token each in the vocabulary of a run."""
    tokenizer = run.tokenizers[0]
    pieces = [piece.lstrip("▁Ġ ") for piece in tokenizer.piece_table()]
    words = sorted({piece for piece in pieces if len(piece) > 3 and piece.isascii() and piece.isalpha()})
    generator = random.Random(0)
    chosen = [
        word for word in generator.sample(words, min(3000, len(words))) if len(tokenizer.encode([f"a {word}"])[0]) == 2
    ]
    return [" ".join(["a", *generator.choices(chosen, k=WORDS - 1)]) for _ in range(count)]


def measure_checkpoint(case: Case, pretrained: str, rounds: int, threads: int, tiny: bool) -> Result:
    """Returns the measurements of a case, after writing, importing and exporting its checkpoint."""
    import zoo
    from export.saved_model import export_saved_model
    from training.importing.workdir import import_checkpoint

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint, workdir = folder / "checkpoint", folder / "imported"
        checkpoint.mkdir()
        WRITERS[case.name](Path(pretrained), checkpoint, tiny)
        import_checkpoint(f"hf:{checkpoint}", workdir)
        run = zoo.load(workdir)
        texts = random_texts(
            run, {TRANSLATION: BATCH, EMBEDDING: SENTENCES, GENERATION: max(PROMPTS.values())}[case.name]
        )
        original = run.tokenizers[0].original_ids
        rows = [[original[i] for i in row] for row in run.ids(texts)]
        (folder / "ids.json").write_text(json.dumps(rows), encoding="ascii")
        (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        parts = {"dynamic_batching": True, "num_batch_threads": threads}
        for export in {contestant.work["export"] for contestant in case.contestants if "export" in contestant.work}:
            options = parts if export == "parts" else {}
            if case.name == TRANSLATION:
                for beam in SEARCHES.values():
                    rules = {"beam_size": beam, "rules": "huggingface", "max_length": STEPS}
                    export_saved_model(workdir, folder / f"{export}-{beam}", **rules, **options)
            else:
                options = {"max_length": WORDS + NEW} if case.name == GENERATION else {}
                export_saved_model(workdir, folder / export, **options)
        sizes = {"steps": STEPS, "batch": PART, "new": NEW}
        prepared = dataclasses.replace(case, work={**sizes, "folder": str(folder), "kind": case.name})
        measurements = measure(prepared, rounds, threads, tiny)
    return {**measurements, "versions": our_versions()}


def section(case: Case, measurements: Result) -> str:
    """Returns the measurements of a case as Markdown."""
    columns = (
        *columns_of_times(""),
        column_of_ratios(case, measurements),
        Column.of("note", "how"),
    )
    return case_section(case, measurements, columns, "zoo against")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("checkpoints", __doc__, rounds=5)
    parser.add_argument("--pretrained", type=Path, required=True, metavar="DIR", help="folder of tokenizers")
    parser.add_cases(CASES)
    parser.add_contestants(threads=2)
    options = parser.parse_args(arguments)
    report = Report(options)
    report.begin(METHOD.format(rounds=options.rounds, threads=options.threads))
    for name in options.case or CASES:
        case = CASES[name].among(options.contestant)
        settings = {
            "pretrained": str(options.pretrained.resolve()),
            "rounds": options.rounds,
            "threads": options.threads,
        }
        result = load_or_measure_case("checkpoints", case, options, measure_checkpoint, options.contestant, **settings)
        report.add(section(case, result))
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
