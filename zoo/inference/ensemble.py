"""Ensembles of trained translators, which choose every token together."""

import math
import os
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from zoo.decoding_options import check_ensemble
from zoo.inference.seq2seq_run import Seq2SeqRun
from zoo.models.shared.embeddings import layers_of_steps


class Ensemble(keras.Model):
    """Several translators with equal vocabularies as one model, which computes the mean of their probabilities.

    `P(y_t | y_<t, x) = (1/M) Σ_m P_m(y_t | y_<t, x)`

    It has the interface of a `Seq2SeqModel`. Memories and states are tuples over the members; logits are the logarithms
    of the mean probabilities, in float32. The attention of the members is concatenated along the axis of layers; if
    their numbers of heads differ, each layer has one head, the mean of its heads. Embeddings are concatenated along the
    last axis.

    Args:
        members: `Seq2SeqModel`s with equal vocabularies.

    Attributes:
        attends: Whether all members have attention.
        attention_kinds: The kinds of attention that all members have.
        can_rewind: See `Seq2SeqModel`.

    Reference:
        Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", section 3.6,
        https://arxiv.org/abs/1409.3215
    """

    can_rewind = False

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__(dtype="float32")
        first, *others = self.members = list(members)
        self.source_vocab_size, self.target_vocab_size = first.source_vocab_size, first.target_vocab_size
        self.attends = all(member.attends for member in self.members)
        self.attention_kinds = tuple(
            kind for kind in first.attention_kinds if all(kind in other.attention_kinds for other in others)
        )
        self.built = True

    @property
    def layers_of_steps(self) -> list[Any]:
        """See `ZooModel`."""
        return layers_of_steps(*self.members)

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.decode(inputs["target"], self.encode(inputs["source"], training), training)[0]

    def encode(self, source: Any, training: bool | None = None) -> Any:
        """See `Seq2SeqModel`."""
        return tuple(member.encode(source, training=training) for member in self.members)

    def decode(self, target: Any, memory: Any, training: bool | None = None) -> tuple[Any, None]:
        """See `Seq2SeqModel`; the weights are those of `attention`."""
        pairs = zip(self.members, memory, strict=True)
        return _mean([member.decode(target, own_memory, training=training)[0] for member, own_memory in pairs]), None

    def initial_state(self, memory: Any, max_length: Any = None, sharing: int = 1) -> Any:
        """See `Seq2SeqModel`."""
        pairs = zip(self.members, memory, strict=True)
        return tuple(member.initial_state(own_memory, max_length, sharing) for member, own_memory in pairs)

    def readout(self, tokens: Any) -> Any:
        """See `Seq2SeqModel`."""
        return tuple(member.readout(tokens) for member in self.members)

    def decode_step(
        self,
        last: Any,
        state: Any,
        memory: Any,
        sharing: int = 1,
        return_attention_scores: bool = False,
        readout: Any = None,
    ) -> tuple[Any, ...]:
        """See `Seq2SeqModel`."""
        options = [{}] * len(self.members) if readout is None else [{"readout": own_readout} for own_readout in readout]
        results = [
            member.decode_step(last, own_state, own_memory, sharing, return_attention_scores, **own_options)
            for member, own_state, own_memory, own_options in zip(self.members, state, memory, options, strict=True)
        ]
        logits, *attention, states = zip(*results, strict=True)
        return _mean(logits), *map(_concatenated, attention), states

    def represent(self, source: Any) -> Any:
        """See `Seq2SeqModel`."""
        return ops.concatenate([member.represent(source) for member in self.members], axis=-1)

    def embed(self, source: Any) -> Any:
        """See `Seq2SeqModel`."""
        return ops.concatenate([member.embed(source) for member in self.members], axis=-1)

    def attentions(self, source: Any, target: Any) -> dict[str, Any]:
        """See `Seq2SeqModel`."""
        attentions = [member.attentions(source, target) for member in self.members]
        return {kind: _concatenated([kinds[kind] for kinds in attentions]) for kind in self.attention_kinds}

    def attention(self, source: Any, target: Any) -> Any:
        """See `Seq2SeqModel`."""
        return _concatenated([member.attention(source, target) for member in self.members])


def _mean(logits: Sequence[Any]) -> Any:
    """Returns the logarithms of the mean of the probabilities, given the logits of each member."""
    log_probs = [ops.log_softmax(ops.cast(member_logits, "float32"), axis=-1) for member_logits in logits]
    return ops.logsumexp(ops.stack(log_probs), axis=0) - math.log(len(log_probs))


def _concatenated(weights: Sequence[Any]) -> Any:
    """Concatenates attention weights [B, layers, heads, ...] of several models along the axis of layers."""
    if len({tensor.shape[2] for tensor in weights}) > 1:
        weights = [ops.mean(tensor, axis=2, keepdims=True) for tensor in weights]
    return ops.concatenate(list(weights), axis=1)


class EnsembleRun(Seq2SeqRun):
    """Several trained translators as one run; `zoo.load` returns it for a list of work directories.

    Path, configuration and shortlist are those of the first member.

    Args:
        paths: The work directories, whose tokenizers must be the same.

    Raises:
        InputError: If the list is empty, a member is not a translator, or their tokenizers differ.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        check_ensemble(paths)
        self._members = [Seq2SeqRun(path) for path in paths]
        first = self._members[0]
        self.path, self.config, self.spec, self.tokenizers = first.path, first.config, first.spec, first.tokenizers
        self.model = Ensemble([member.model for member in self._members])
        self._predictors = {}

    @property
    def members(self) -> Sequence[Seq2SeqRun]:
        """The run of each work directory."""
        return self._members

    def _check_kind(self, kind: str) -> None:
        for member in self._members:
            member._check_kind(kind)

    def reloaded(self) -> "EnsembleRun":
        """See `Run`."""
        run = EnsembleRun([member.path for member in self._members])
        run.tokenizers = self.tokenizers
        return run
