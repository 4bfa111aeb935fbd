"""An epoch of real text: from its lines to the last step."""

from benchmarks.kept import FOLDER
from benchmarks.texts import absolute, read
from benchmarks.training.cases import Case, epoch
from training.tasks import get_task

BATCH_TOKENS = 2048  # on the longer side, padding included, as in the recipe of transformer_tiny


def epoch_case(spec: str) -> Case:
    """Returns the case, behind preparing what contestants read: the numbers of a sentence's subwords in each line.

    Ours reads the text itself, and tokenizes it in each turn; the peers are spared that.

    Args:
        spec: The text, `text:DIR:SRC-TGT`.
    """
    spec = absolute(spec)
    config, data, tokenizer = read(spec)
    pairs, languages = data.split("train"), spec.rpartition(":")[2]
    folder = FOLDER / "training" / "text"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    tokenizers = {"source": tokenizer, "target": tokenizer}
    batches = get_task("seq2seq").batches(config.data, data, "train", tokenizers, batch_tokens=BATCH_TOKENS)
    sides = {"source": batches.source, "target": batches.target}
    for side, rows in sides.items():
        (folder / side).write_text("".join(f"{' '.join(map(str, row))}\n" for row in rows), encoding="ascii")
    lengths = {f"{side}_length": max(map(len, rows)) + 1 for side, rows in sides.items()}
    described = {"text": str(folder), "spec": spec, "batch_tokens": BATCH_TOKENS, "vocabulary": tokenizer.vocab_size}
    title = (
        f"{len(pairs.source):,} pairs {languages}, a Transformer of 4 + 4 layers, D 128, inside 256, 4 heads, "
        f"vocabulary {tokenizer.vocab_size:,}: an epoch in batches of {BATCH_TOKENS:,} symbols, with the "
        "reading of the text"
    )
    return epoch({**described, **lengths, "symbols": sum(len(row) + 1 for row in sides["target"])}, title)
