"""What a served model did with a text: asked over gRPC, and put into a `View`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from export.client import Client, Pending, Signature
from export.client.answers import Outputs, classifications
from zoo.errors import InputError
from zoo.explorer import AnswerView, Attention, View
from zoo.explorer.view import encoded, layers_of

MAX_TEXT_BYTES = 1 << 15
"""The longest text, in bytes of UTF-8: models read no more."""
SHORT_TEXT_BYTES = 200
"""Of a text up to this size all layers are asked for at once, of a longer one the last, and the others one by one."""
MANY_TOKENS = 512
"""As many tokens as models read of a text at once, unless they are language models."""

ATTENTION, ATTENTION_OF_NBEST, DEFAULT = "attention_all", "attention_nbest", "serving_default"
KINDS = ("encoder", "cross", "decoder")
CUT = f"The model reads at most {MANY_TOKENS} symbols at once; what this text has beyond them is not shown."

Wait = Callable[[Pending], Outputs]


class ServedModel:
    """A model of a server, asked for views.

    Args:
        client: The `Client` of the model.
        name: What to call it.
    """

    def __init__(self, client: Client, name: str):
        self._client, self.name = client, name

    def view(self, text: str, wait: Wait = Pending.result, everything: bool = False) -> View:
        """Returns the view of a text: its answers, and the inside of the first one.

        Args:
            text: The text.
            wait: Waits for the answer to a request; another one may give up.
            everything: Whether all answers and layers are asked for, whatever the size.

        Raises:
            InputError: If the text is too long, or the model cannot show its attention.
            ServerError: See `Client.predict`.
        """
        _check(text)
        task, signatures = self._task_and_signatures()
        asked = _Questions(self._client, signatures, wait, text)
        view = {"seq2seq": self._translation, "classifier": self._classification, "language_model": self._continuation}
        found = view[task](asked, whole=everything or _is_short(text))
        if everything:
            answers = [_loaded(asked, answer) for answer in found.answers]
            found = dataclasses.replace(found, answers=answers)
        return found

    def answer(self, text: str, hypothesis: int | None, wait: Wait = Pending.result) -> AnswerView:
        """Returns the inside of one answer of a translator; of a long text of the last layer alone.

        Args:
            text: The text.
            hypothesis: Which of the n-best answers, `None` for the default one.
            wait: See `view`.

        Raises:
            InputError: See `view`; or if the export does not know of hypotheses.
            ServerError: See `view`.
        """
        _check(text)
        task, signatures = self._task_and_signatures()
        if task != "seq2seq":
            raise InputError(f"{self.name} has one answer to a text: it is no translator.")
        outputs = _Questions(self._client, signatures, wait, text).inside(hypothesis, _is_short(text))
        return _answer_of(outputs, outputs["text"][0], None, hypothesis)

    def layer(self, text: str, hypothesis: int | None, layer: int, wait: Wait = Pending.result) -> dict[str, str]:
        """Returns one layer of each kind of attention, as it stands in a view.

        Args:
            text: The text.
            hypothesis: See `answer`.
            layer: Which, counted from 0.
            wait: See `view`.

        Raises:
            InputError: See `answer`; or if there is no such layer.
            ServerError: See `view`.
        """
        _check(text)
        task, signatures = self._task_and_signatures()
        asked = _Questions(self._client, signatures, wait, text)
        if task == "language_model":
            asked = asked.about(text + asked.default()["text"][0])
        outputs = asked.one_layer(hypothesis, layer)
        return {kind: encoded(next(_layers(outputs, kind, task))) for kind in KINDS if kind in outputs}

    def _task_and_signatures(self) -> tuple[str, Mapping[str, Signature]]:
        """Returns what kind of model it is, by what it answers."""
        signatures = self._client.signatures()
        if ATTENTION not in signatures:
            raise InputError(
                f"{self.name} has no signature `{ATTENTION}`, only {', '.join(sorted(signatures))}. Either the model "
                "does not attend, or an earlier version exported it; then export it again with export.saved_model."
            )
        if "source_tokens" in signatures[ATTENTION].outputs:
            return "seq2seq", signatures
        default = signatures.get(DEFAULT)
        if default is None or not {"label", "text"} & {*default.outputs}:
            raise InputError(
                f"{self.name} is no model that the explorer knows: `{DEFAULT}` gives no text and no label."
            )
        return ("classifier" if "label" in default.outputs else "language_model"), signatures

    def _translation(self, asked: "_Questions", whole: bool) -> View:
        outputs = asked.inside(None, whole)
        answers = asked.nbest()
        text = outputs["text"][0]
        known = [answer for answer in answers if answer.text == text]
        log_probs = outputs.get("token_log_probs")
        log_prob = float(log_probs.sum()) if log_probs is not None else None
        first = _answer_of(outputs, text, known[0].log_prob if known else log_prob, None)
        others = [answer for answer in answers if answer.text != text]
        tokens = _tokens(outputs, "source_tokens")
        encoder = _attentions(outputs, "seq2seq", "encoder")
        notes = [CUT] if len(tokens) >= MANY_TOKENS else []
        return View("seq2seq", self.name, asked.text, tokens, encoder, [first, *others], notes=notes)

    def _classification(self, asked: "_Questions", whole: bool) -> View:
        (classification,) = classifications(asked.default())
        outputs = asked.inside(None, whole)
        tokens = _tokens(outputs, "tokens")
        return View(
            "classifier",
            self.name,
            asked.text,
            tokens,
            _attentions(outputs, "classifier", "encoder"),
            classes=sorted(classification.probabilities.items(), key=lambda pair: -pair[1]),
            notes=[CUT] if len(tokens) >= MANY_TOKENS else [],
        )

    def _continuation(self, asked: "_Questions", whole: bool) -> View:
        default = asked.default()
        continuation, log_prob = default["text"][0], float(default["log_prob"][0])
        outputs = asked.about(asked.text + continuation).inside(None, whole)
        given = asked.prompt_length()
        answer = _answer_of(outputs, continuation, log_prob, None, given)
        return View("language_model", self.name, asked.text, answers=[answer])


@dataclasses.dataclass(frozen=True)
class _Questions:
    """Requests about one text."""

    client: Client
    signatures: Mapping[str, Signature]
    wait: Wait
    text: str

    def about(self, text: str) -> "_Questions":
        return dataclasses.replace(self, text=text)

    def default(self) -> Outputs:
        """Returns the default answer."""
        return self._ask(DEFAULT, {"text": [self.text]})

    def nbest(self) -> list[AnswerView]:
        """Returns the n-best answers, nothing of their inside; none where the export cannot show that."""
        if "nbest" not in self.signatures or ATTENTION_OF_NBEST not in self.signatures:
            return []
        outputs = self._ask("nbest", {"text": [self.text]})
        pairs = zip(outputs["texts"][0], map(float, outputs["log_probs"][0]), strict=True)
        return [AnswerView(text, value, number) for number, (text, value) in enumerate(pairs) if value > -1e29]

    def prompt_length(self) -> int:
        """Returns how many symbols a language model's text has."""
        if "score" not in self.signatures:
            return 0
        return int(self._ask("score", {"text": [self.text]})["num_tokens"][0])

    def inside(self, hypothesis: int | None, whole: bool) -> Outputs:
        """Returns tokens, predictions and attention; all layers, or the last one alone."""
        return self._ask_about(hypothesis, {} if whole else {"layer": _number(-1)})

    def one_layer(self, hypothesis: int | None, layer: int) -> Outputs:
        """Returns tokens, and one layer of attention."""
        outputs = self.signatures[ATTENTION].outputs
        wanted = [name for name in outputs if name in KINDS or name.endswith("tokens")]
        return self._ask_about(hypothesis, {"layer": _number(layer)}, wanted)

    def _ask_about(self, hypothesis: int | None, inputs: Mapping[str, Any], outputs: Sequence[str] = ()) -> Outputs:
        """Asks about one of the n-best answers, or about the default one."""
        if hypothesis is None:
            return self._ask(ATTENTION, {"text": [self.text], **inputs}, outputs)
        if ATTENTION_OF_NBEST not in self.signatures:
            raise InputError(f"This export has no signature `{ATTENTION_OF_NBEST}`, and shows the best answer alone.")
        return self._ask(
            ATTENTION_OF_NBEST, {"text": [self.text], "hypothesis": _number(hypothesis), **inputs}, outputs
        )

    def _ask(self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()) -> Outputs:
        return self.wait(self.client.start(signature, inputs, outputs))


def _number(number: int) -> np.ndarray:
    return np.array([number], np.int32)


def _check(text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_TEXT_BYTES:
        raise InputError(f"The text is too long: {size:,} bytes, and models read {MAX_TEXT_BYTES:,}. Shorten it.")


def _is_short(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) <= SHORT_TEXT_BYTES


def _loaded(asked: _Questions, answer: AnswerView) -> AnswerView:
    """Returns an answer with its inside, all of it."""
    if answer.tokens is not None:
        return answer
    return _answer_of(asked.inside(answer.hypothesis, whole=True), answer.text, answer.log_prob, answer.hypothesis)


def _tokens(outputs: Outputs, name: str) -> list[str]:
    return [token for token in outputs[name][0].tolist() if token]


def _answer_of(
    outputs: Outputs, text: str, log_prob: float | None, hypothesis: int | None, given: int = 0
) -> AnswerView:
    """Returns an answer, of a translator or a language model, from the outputs of `attention_all`."""
    is_translation = "source_tokens" in outputs
    before = _tokens(outputs, "decoder_tokens" if is_translation else "tokens")
    # Exports of language models of an earlier version name no tokens that follow.
    tokens = _tokens(outputs, "target_tokens") if "target_tokens" in outputs else [*before[1:], ""]
    log_probs, alternatives = [], []
    if "alternatives" in outputs:
        log_probs = outputs["token_log_probs"][0][: len(tokens)].tolist()
        pairs = zip(outputs["alternatives"][0].tolist(), outputs["alternative_log_probs"][0].tolist(), strict=True)
        alternatives = [list(zip(*pair, strict=True)) for pair in pairs][: len(tokens)]
    kinds = ("cross", "decoder")
    attention = _attentions(outputs, "seq2seq" if is_translation else "language_model", *kinds)
    return AnswerView(
        text, log_prob, hypothesis, tokens, before, log_probs, alternatives, attention, min(given, len(tokens))
    )


_SIDES = {
    ("seq2seq", "encoder"): ("source_tokens", "source_tokens"),
    ("seq2seq", "cross"): ("target_tokens", "source_tokens"),
    ("seq2seq", "decoder"): ("decoder_tokens", "decoder_tokens"),
    ("classifier", "encoder"): ("tokens", "tokens"),
    ("language_model", "decoder"): ("tokens", "tokens"),
}
"""The outputs whose tokens attend and are attended to; what is padding there is padding here."""


def _layers(outputs: Outputs, kind: str, task: str) -> Any:
    rows, columns = (outputs[name][0] != "" for name in _SIDES[task, kind])
    return layers_of(outputs[kind][0], rows, columns)


def _attentions(outputs: Outputs, task: str, *kinds: str) -> dict[str, Attention]:
    """Returns kinds of attention with as many layers as there are, those that were not asked for unknown."""
    found = {}
    for kind in kinds:
        if kind in outputs and (task, kind) in _SIDES:
            layers: list[np.ndarray | None] = list(_layers(outputs, kind, task))
            size = outputs.get(f"{kind}_size")
            missing = 0 if size is None else int(size[0][0]) - len(layers)
            found[kind] = Attention([None] * missing + layers)
    return found
