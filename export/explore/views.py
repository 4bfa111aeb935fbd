"""Requests a served model's outputs for a text over gRPC, and converts them to a `View`."""

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
"""The maximum length of a text, in bytes of UTF-8; models read no more."""
SHORT_TEXT_BYTES = 200
"""Up to this size, all layers are requested at once; for longer texts, first the last layer, then others one by one."""
MANY_TOKENS = 512
"""The maximum number of tokens that models read of a text, except for language models."""

ATTENTION, ATTENTION_OF_NBEST, DEFAULT = "attention_all", "attention_nbest", "serving_default"
KINDS = ("encoder", "cross", "decoder")
CUT = f"The model reads at most {MANY_TOKENS} tokens at once; the rest of this text is not shown."

Wait = Callable[[Pending], Outputs]


class ServedModel:
    """A model of a server, as a source of views.

    Args:
        client: The `Client` of the model.
        name: The name to display.
    """

    def __init__(self, client: Client, name: str):
        self._client, self.name = client, name

    def view(self, text: str, wait: Wait = Pending.result, everything: bool = False) -> View:
        """Returns the view of a text: its outputs, with the attention of the first one.

        Args:
            text: The text.
            wait: Function that waits for the response to a request; it may raise to give up.
            everything: Whether all outputs and layers are requested, regardless of the text's size.

        Raises:
            InputError: If the text is too long, or the model cannot show its attention.
            ServerError: See `Client.predict`.
        """
        _check(text)
        task, signatures = self._task_and_signatures()
        requests = _Requests(self._client, signatures, wait, text)
        view = {"seq2seq": self._translation, "classifier": self._classification, "language_model": self._continuation}
        result = view[task](requests, whole=everything or _is_short(text))
        if everything:
            answers = [_complete(requests, answer) for answer in result.answers]
            result = dataclasses.replace(result, answers=answers)
        return result

    def answer(self, text: str, hypothesis: int | None, wait: Wait = Pending.result) -> AnswerView:
        """Returns one translation with its attention; for a long text that of the last layer only.

        Args:
            text: The text.
            hypothesis: The number of the n-best translation; `None` for the default one.
            wait: See `view`.

        Raises:
            InputError: See `view`; or if the export has no attention of n-best translations.
            ServerError: See `view`.
        """
        _check(text)
        task, signatures = self._task_and_signatures()
        if task != "seq2seq":
            raise InputError(f"{self.name} is not a translator, and has only one output per text.")
        outputs = _Requests(self._client, signatures, wait, text).inside(hypothesis, _is_short(text))
        return _answer_of(outputs, outputs["text"][0], None, hypothesis)

    def layer(self, text: str, hypothesis: int | None, layer: int, wait: Wait = Pending.result) -> dict[str, str]:
        """Returns one layer of each kind of attention, encoded as in a view.

        Args:
            text: The text.
            hypothesis: See `answer`.
            layer: Its number, counted from 0.
            wait: See `view`.

        Raises:
            InputError: See `answer`; or if there is no such layer.
            ServerError: See `view`.
        """
        _check(text)
        task, signatures = self._task_and_signatures()
        requests = _Requests(self._client, signatures, wait, text)
        if task == "language_model":
            requests = requests.about(text + requests.default()["text"][0])
        outputs = requests.one_layer(hypothesis, layer)
        return {kind: encoded(next(_layers(outputs, kind, task))) for kind in KINDS if kind in outputs}

    def _task_and_signatures(self) -> tuple[str, Mapping[str, Signature]]:
        """Returns the model's task, derived from its signatures, and the signatures."""
        signatures = self._client.signatures()
        if ATTENTION not in signatures:
            raise InputError(
                f"{self.name} has no signature `{ATTENTION}`, only {', '.join(sorted(signatures))}. Either the model "
                "has no attention, or an earlier version exported it; then export it again with export.saved_model."
            )
        if "source_tokens" in signatures[ATTENTION].outputs:
            return "seq2seq", signatures
        default = signatures.get(DEFAULT)
        if default is None or not {"label", "text"} & {*default.outputs}:
            raise InputError(
                f"The explorer does not support {self.name}: `{DEFAULT}` has neither the output text nor label."
            )
        return ("classifier" if "label" in default.outputs else "language_model"), signatures

    def _translation(self, requests: "_Requests", whole: bool) -> View:
        outputs = requests.inside(None, whole)
        answers = requests.nbest()
        text = outputs["text"][0]
        same = [answer for answer in answers if answer.text == text]
        log_probs = outputs.get("token_log_probs")
        log_prob = float(log_probs.sum()) if log_probs is not None else None
        first = _answer_of(outputs, text, same[0].log_prob if same else log_prob, None)
        others = [answer for answer in answers if answer.text != text]
        tokens = _tokens(outputs, "source_tokens")
        encoder = _attentions(outputs, "seq2seq", "encoder")
        notes = [CUT] if len(tokens) >= MANY_TOKENS else []
        return View("seq2seq", self.name, requests.text, tokens, encoder, [first, *others], notes=notes)

    def _classification(self, requests: "_Requests", whole: bool) -> View:
        (classification,) = classifications(requests.default())
        outputs = requests.inside(None, whole)
        tokens = _tokens(outputs, "tokens")
        return View(
            "classifier",
            self.name,
            requests.text,
            tokens,
            _attentions(outputs, "classifier", "encoder"),
            classes=sorted(classification.probabilities.items(), key=lambda pair: -pair[1]),
            notes=[CUT] if len(tokens) >= MANY_TOKENS else [],
        )

    def _continuation(self, requests: "_Requests", whole: bool) -> View:
        default = requests.default()
        continuation, log_prob = default["text"][0], float(default["log_prob"][0])
        outputs = requests.about(requests.text + continuation).inside(None, whole)
        answer = _answer_of(outputs, continuation, log_prob, None, requests.prompt_length())
        return View("language_model", self.name, requests.text, answers=[answer])


@dataclasses.dataclass(frozen=True)
class _Requests:
    """Requests about one text."""

    client: Client
    signatures: Mapping[str, Signature]
    wait: Wait
    text: str

    def about(self, text: str) -> "_Requests":
        return dataclasses.replace(self, text=text)

    def default(self) -> Outputs:
        """Returns the outputs of the default signature."""
        return self._send(DEFAULT, {"text": [self.text]})

    def nbest(self) -> list[AnswerView]:
        """Returns the n-best translations without attention; empty if the export has none or cannot explain them."""
        if "nbest" not in self.signatures or ATTENTION_OF_NBEST not in self.signatures:
            return []
        outputs = self._send("nbest", {"text": [self.text]})
        pairs = zip(outputs["texts"][0], map(float, outputs["log_probs"][0]), strict=True)
        return [AnswerView(text, value, number) for number, (text, value) in enumerate(pairs) if value > -1e29]

    def prompt_length(self) -> int:
        """Returns the number of tokens of a language model's text."""
        if "score" not in self.signatures:
            return 0
        return int(self._send("score", {"text": [self.text]})["num_tokens"][0])

    def inside(self, hypothesis: int | None, whole: bool) -> Outputs:
        """Returns tokens, predictions and attention, of all layers or of the last one."""
        return self._send_about(hypothesis, {} if whole else {"layer": _number(-1)})

    def one_layer(self, hypothesis: int | None, layer: int) -> Outputs:
        """Returns tokens and one layer of attention."""
        outputs = self.signatures[ATTENTION].outputs
        wanted = [name for name in outputs if name in KINDS or name.endswith("tokens")]
        return self._send_about(hypothesis, {"layer": _number(layer)}, wanted)

    def _send_about(self, hypothesis: int | None, inputs: Mapping[str, Any], outputs: Sequence[str] = ()) -> Outputs:
        """Returns tokens and attention of one n-best translation or, for `None`, of the default output."""
        if hypothesis is None:
            return self._send(ATTENTION, {"text": [self.text], **inputs}, outputs)
        if ATTENTION_OF_NBEST not in self.signatures:
            raise InputError(f"This export has no signature `{ATTENTION_OF_NBEST}`; only the best output is available.")
        return self._send(
            ATTENTION_OF_NBEST, {"text": [self.text], "hypothesis": _number(hypothesis), **inputs}, outputs
        )

    def _send(self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()) -> Outputs:
        return self.wait(self.client.start(signature, inputs, outputs))


def _number(number: int) -> np.ndarray:
    return np.array([number], np.int32)


def _check(text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_TEXT_BYTES:
        raise InputError(f"The text is too long: {size:,} bytes, of {MAX_TEXT_BYTES:,} at most. Shorten it.")


def _is_short(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) <= SHORT_TEXT_BYTES


def _complete(requests: _Requests, answer: AnswerView) -> AnswerView:
    """Returns an answer with its tokens, predictions and attention."""
    if answer.tokens is not None:
        return answer
    return _answer_of(requests.inside(answer.hypothesis, whole=True), answer.text, answer.log_prob, answer.hypothesis)


def _tokens(outputs: Outputs, name: str) -> list[str]:
    return [token for token in outputs[name][0].tolist() if token]


def _answer_of(
    outputs: Outputs, text: str, log_prob: float | None, hypothesis: int | None, prompt_length: int = 0
) -> AnswerView:
    """Returns an answer of a translator or a language model, from the outputs of `attention_all`."""
    is_translation = "source_tokens" in outputs
    before = _tokens(outputs, "decoder_tokens" if is_translation else "tokens")
    # Older exports of language models have no output `target_tokens`.
    tokens = _tokens(outputs, "target_tokens") if "target_tokens" in outputs else [*before[1:], ""]
    log_probs, alternatives = [], []
    if "alternatives" in outputs:
        log_probs = outputs["token_log_probs"][0][: len(tokens)].tolist()
        pairs = zip(outputs["alternatives"][0].tolist(), outputs["alternative_log_probs"][0].tolist(), strict=True)
        alternatives = [list(zip(*pair, strict=True)) for pair in pairs][: len(tokens)]
    kinds = ("cross", "decoder")
    attention = _attentions(outputs, "seq2seq" if is_translation else "language_model", *kinds)
    return AnswerView(
        text, log_prob, hypothesis, tokens, before, log_probs, alternatives, attention, min(prompt_length, len(tokens))
    )


_SIDES = {
    ("seq2seq", "encoder"): ("source_tokens", "source_tokens"),
    ("seq2seq", "cross"): ("target_tokens", "source_tokens"),
    ("seq2seq", "decoder"): ("decoder_tokens", "decoder_tokens"),
    ("classifier", "encoder"): ("tokens", "tokens"),
    ("language_model", "decoder"): ("tokens", "tokens"),
}
"""The outputs with the tokens that attend and that are attended to; their padding is also the attention's."""


def _layers(outputs: Outputs, kind: str, task: str) -> Any:
    rows, columns = (outputs[name][0] != "" for name in _SIDES[task, kind])
    return layers_of(outputs[kind][0], rows, columns)


def _attentions(outputs: Outputs, task: str, *kinds: str) -> dict[str, Attention]:
    """Returns kinds of attention with all layers; layers that were not requested are `None`."""
    attentions = {}
    for kind in kinds:
        if kind in outputs and (task, kind) in _SIDES:
            layers: list[np.ndarray | None] = list(_layers(outputs, kind, task))
            size = outputs.get(f"{kind}_size")
            missing = 0 if size is None else int(size[0][0]) - len(layers)
            attentions[kind] = Attention([None] * missing + layers)
    return attentions
