"""Writes the page of the comparison."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.parity.measure import BATCH, BEAMS, Count, Result
from benchmarks.parity.reference import DIM, HEADS, LAYERS, MAX_LENGTH
from benchmarks.runner.report import table

_WAYS = {
    "greedy, Python": "greedy, Python",
    "greedy, SavedModel": "greedy, SavedModel",
    "greedy, gRPC": "greedy, gRPC",
    "beam, Python": f"{BEAMS} beams, Python",
    "beam, SavedModel": f"{BEAMS} beams, SavedModel",
    "beam, gRPC": f"{BEAMS} beams, gRPC",
}
_TOKENS = ("ids, host", "ids, graph", "text, host", "text, graph")
_LOGITS = {
    "alone": "alone",
    "padded": f"in batches of {BATCH}, padded",
    "stepwise": "step by step, beside all at once",
    "SavedModel": "SavedModel",
}


def markdown(results: Sequence[Result], missing: Mapping[str, str], command: str, shown: int) -> str:
    """Returns the page.

    Args:
        results: The results of families.
        missing: Why families are left out, by their names.
        command: The command of the page.
        shown: The number of differences of each kind on the page.
    """
    differences = list(_differences(results, shown))
    with_answers, with_tokens = (
        [result for result in results if getattr(result, name)] for name in ("answers", "tokens")
    )
    parts = [
        "# Imported models beside their own software",
        f"Written by `{command}`. " + " ".join(dict.fromkeys(f"{result.where}." for result in results)),
        f"Each checkpoint is written by its own software, with random weights and a real tokenizer: {LAYERS} layers "
        f"of {DIM} features and {HEADS} heads; MiniLM and BERT have the configuration of all-MiniLM-L6-v2, Qwen2 and "
        "Qwen3 the vocabulary of GPT-2, T5 and mT5 the SentencePiece model of Firefox's en-de translator, DistilBERT "
        "the vocabulary of MiniLM, XLM-RoBERTa the SentencePiece model of OPUS-MT en-mg; RoBERTa has GPT-2's "
        "vocabulary, and MPNet MiniLM's, with special pieces of its own. The end is more probable than other tokens, "
        "so that texts have different lengths. Only the transliteration is a trained model. All weights are float32.",
        *(
            f"{'; '.join(name for name in missing if missing[name] == reason)}: {reason}."
            for reason in dict.fromkeys(missing.values())
        ),
        "## Logits",
        "The largest difference, relative to the largest logit, of 21 texts and the reference's outputs; for sentence "
        "encoders that of vectors, for CTranslate2 that of log probabilities. The reference reads each text alone, "
        "without padding.",
        "\n".join(table(["family", *_LOGITS.values()], map(_logits_row, results))),
        "## Answers",
        "The number of equal texts. Language models continue the first words of sentences, up to "
        f"{MAX_LENGTH} tokens; translations have as many at most. Beam search follows the rules of the reference: "
        "`--rules huggingface` or `ctranslate2`. The last column is the number of different texts of the reference.",
        "\n".join(table(["family", *_WAYS.values(), "different answers"], map(_answers_row, with_answers))),
        "## Ids",
        "The number of lines with equal ids, on the host and in the graph, and of rows of ids that are decoded to the "
        "same text. Special tokens in a text are read as text. Lines are those of the files after `--text`, and "
        "random ones of control, combining, joining, right-to-left and other characters and of long words.",
        "\n".join(table(["vocabulary", "beside", "ids in all", *_TOKENS], map(_ids_row, with_tokens))),
        "## What differed",
        "\n".join(differences) or "Nothing.",
    ]
    return "\n\n".join(parts) + "\n"


def _logits_row(result: Result) -> list[str]:
    return [result.family, *(f"{result.logits[way]:.1e}" if way in result.logits else "–" for way in _LOGITS)]


def _answers_row(result: Result) -> list[str]:
    return [result.family, *_cells(result.answers, _WAYS), f"{result.distinct:,}"]


def _ids_row(result: Result) -> list[str]:
    return [*result.tokenizer.split(" | "), f"{result.ids:,}", *_cells(result.tokens, _TOKENS)]


def _cells(counts: Mapping[str, Count], ways: Iterable[str]) -> list[str]:
    return [str(counts[way]) if way in counts else "–" for way in ways]


def _differences(results: Sequence[Result], shown: int) -> Iterator[str]:
    for result in results:
        for way, count in {**result.answers, **result.tokens}.items():
            if not count.different:
                continue
            moved = sum(_is_moved(ours, theirs) for _, ours, theirs in count.different)
            kind = f", {moved:,} of them only in the order of ids" if way.startswith("ids") else ""
            examples = (
                f"  - {_code(text)} gives {_code(ours)}, there {_code(theirs)}"
                for text, ours, theirs in count.different[:shown]
            )
            yield "\n".join([f"- {result.family}, {way}: {len(count.different):,}{kind}. For example", "", *examples])


def _is_moved(ours: str, theirs: str) -> bool:
    """Returns whether two rows of ids, as texts, contain the same ids in another order."""
    return sorted(ours.strip("[]").split(", ")) == sorted(theirs.strip("[]").split(", "))


def _code(text: str, longest: int = 80) -> str:
    """Returns a text as code in Markdown, with escapes for all characters but ASCII."""
    written = ascii(text if len(text) <= longest else f"{text[:longest]}…").replace("`", "\\x60")
    return f"`{written}`"
