"""Recurrent sequence-to-sequence models: options and names."""

from dataclasses import dataclass

from zoo.errors import InputError
from zoo.models.shared.options import Seq2SeqOptions
from zoo.options import choice, count, flag, rate, size, text
from zoo.registry import ModelSpec, Paper, register_model
from zoo.synonyms import SCORES, unique

WITH_BIAS = ("additive", "concat", "tanh_concat")
WITH_COVERAGE = ("additive", "concat")
_MONOTONIC = (
    "; or monotonic, where each step moves forward from the position of the previous one (Raffel et al. 2017), in "
    "expectation in training and by decisions otherwise, with a normalised additive score."
)

CHO = Paper(
    "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    2014,
    "https://arxiv.org/abs/1406.1078",
)
BAHDANAU = Paper(
    "Neural Machine Translation by Jointly Learning to Align and Translate", 2015, "https://arxiv.org/abs/1409.0473"
)
LUONG = Paper(
    "Effective Approaches to Attention-based Neural Machine Translation", 2015, "https://arxiv.org/abs/1508.04025"
)
SEE = Paper("Get To The Point: Summarization with Pointer-Generator Networks", 2017, "https://arxiv.org/abs/1704.04368")


@dataclass(frozen=True, kw_only=True)
class RecurrentOptions(Seq2SeqOptions):
    """Options of all recurrent sequence-to-sequence models; defaults are those of the papers unless noted."""

    embedding_dim: int = size(1000, "Size of the embeddings, E.")
    units: int = size(1000, "Size of each recurrent state.")
    dropout: float = rate(
        0.0, "Rate of dropout on embeddings, between layers, on the encoder's output and before the output layer."
    )
    cell_type: str = choice("gru", ("gru", "lstm"), "Kind of the recurrent cells.")
    start_state: str = choice(
        "encoder",
        ("encoder", "zero", "learned", "random"),
        "Initial states of the decoder: computed from those of the encoder; zeros; learned weights, the same for every "
        "sentence; or random, N(0, 0.1²), drawn for each sentence in training.",
        synonyms={"zeros": "zero"},
    )
    start_seed: int | None = count(
        0,
        "Seed of the random states in inference, which are the same for every sentence; none: zeros.",
        automatic=True,
    )
    tied_embeddings: str = choice(
        "none",
        ("none", "target", "all"),
        "Layers that share a matrix: none; target: the target embeddings and the output, which has no bias; all: the "
        "source embeddings as well, for a shared vocabulary.",
    )

    def check(self) -> None:
        if self.tied_embeddings == "all":
            self.check_shared_vocabulary()

    def check_output_size(self, name: str) -> None:
        """Checks that the option `name`, the input size of the output layer, fits tied embeddings.

        Raises:
            InputError: If it does not.
        """
        if self.tied_embeddings != "none" and getattr(self, name) != self.embedding_dim:
            raise InputError(
                f"`{name}` must equal `embedding_dim` for tied embeddings. Received: {name}={getattr(self, name)}, "
                f"embedding_dim={self.embedding_dim}, tied_embeddings={self.tied_embeddings!r}."
            )


@dataclass(frozen=True, kw_only=True)
class StackedOptions(RecurrentOptions):
    """Options of the models whose encoder and decoder are stacks of the same height, with states of the same size."""

    num_layers: int = size(1, "Number of layers of the encoder, and of the decoder.")
    reverse_source: bool = flag(
        False,
        "Whether the encoder reads the source backwards. Attention weights, and the positions of local attention and "
        "location scores, are in the order of the source in either case.",
    )
    bidirectional: bool = flag(
        False,
        "Whether the encoder reads in both directions, each with half of the units and regardless of `reverse_source`.",
    )

    def check(self) -> None:
        super().check()
        if self.bidirectional and self.units % 2:
            raise InputError(f"`units` must be even for a bidirectional encoder. Received: units={self.units}.")


@dataclass(frozen=True, kw_only=True)
class RecurrentAttentionOptions(RecurrentOptions):
    """Options of the attention of the decoder's state to the source."""

    score: str = text(
        "general",
        "Score of states and annotations, a name for `zoo.layers.get_score`, such as additive (Bahdanau), dot, general "
        "and concat (Luong), scaled_dot, cosine, tanh_concat or location.",
        synonyms=unique(SCORES),
    )
    score_bias: bool | None = flag(
        None,
        "Whether the hidden layer of additive, concat or tanh_concat has a bias; none: as in their papers, all but "
        "concat.",
        automatic=True,
    )
    attention_units: int = count(0, "Size of the hidden layer of additive and concat; 0: that of the decoder's state.")
    max_length: int = size(512, "Number of source positions with a location score.")
    transitions: int = count(
        0,
        "Number of further updates of the decoder's state in each step, by GRUs without inputs (deep transition, "
        "Miceli Barone et al. 2017); for GRUs, in a stack in each layer.",
    )
    coverage: str = choice(
        "none",
        ("none", "sum", "fertility"),
        "Whether additive and concat scores include the previous attention to each source position (Tu et al. 2016): "
        "its sum, or its sum divided by the fertility, a learned number below 2.",
    )
    alignment: str = choice("global", ("global", "monotonic"), f"Attention to the whole source{_MONOTONIC}")

    def check(self) -> None:
        super().check()
        if self.score_bias is not None and self.score not in WITH_BIAS:
            raise InputError(
                f"`score_bias` requires score={' or '.join(WITH_BIAS)}. "
                f"Received: score_bias={self.score_bias}, score={self.score!r}."
            )
        if self.coverage != "none" and self.alignment == "monotonic":
            raise InputError(
                f"`coverage` cannot be combined with alignment='monotonic'. Received: coverage={self.coverage!r}."
            )
        if self.transitions and self.cell_type != "gru":
            raise InputError(
                f"`transitions` requires cell_type='gru'. Received: transitions={self.transitions}, "
                f"cell_type={self.cell_type!r}."
            )
        if self.coverage != "none" and self.score not in WITH_COVERAGE:
            raise InputError(
                f"`coverage` requires score={' or '.join(WITH_COVERAGE)}. "
                f"Received: coverage={self.coverage!r}, score={self.score!r}."
            )


@dataclass(frozen=True, kw_only=True)
class RNNEncoderDecoderOptions(StackedOptions):
    """Options of `RNNEncoderDecoder`; Cho et al. have `embedding_dim=100`, Sutskever et al. `cell_type="lstm"`."""

    readout_units: int = count(500, "Size of the maxout layer; 0: none, logits are computed from the decoder's state.")
    feed_summary: bool = flag(
        True, "Whether a summary of the source, of the size of a state, is an input of each step and of the readout."
    )

    def check(self) -> None:
        super().check()
        self.check_output_size("readout_units" if self.readout_units else "units")
        if not self.feed_summary and self.start_state != "encoder":
            raise InputError(
                "Without a summary the source is only in the start state: set `start_state='encoder'` or "
                f"`feed_summary=True`. Received: start_state={self.start_state!r}, feed_summary={self.feed_summary}."
            )


@dataclass(frozen=True, kw_only=True)
class RNNSearchOptions(RecurrentAttentionOptions):
    """Options of `RNNSearch`; the paper has `embedding_dim=620`."""

    score: str = RecurrentAttentionOptions.with_default("score", "additive")
    attention_units: int = RecurrentAttentionOptions.with_default("attention_units", 1000)
    attend: str = choice(
        "before",
        ("before", "between"),
        "When the decoder attends: before the update of its state, with inputs y_{i−1} and c_i; or between two "
        "updates, the first with input y_{i−1} and the second with c_i (the conditional GRU of Sennrich et al. 2017, "
        "whose `readout_state` is new).",
    )
    readout_units: int = size(500, "Size of the maxout layer, l; with tied embeddings it must equal `embedding_dim`.")
    readout_state: str = choice(
        "previous",
        ("previous", "new"),
        "State that is an input of the readout, with y_{i−1} and c_i: s_{i−1}, as in the paper's appendix, or s_i.",
    )
    bidirectional: bool = flag(
        True, "Whether the encoder reads in both directions; annotations are then twice as large."
    )
    encoder_units: int = count(
        0,
        "Size of the encoder's state in each direction; 0: that of the decoder's. With half of it, annotations have "
        "the size of states, which dot, scaled_dot and cosine require.",
    )

    def check(self) -> None:
        super().check()
        self.check_output_size("readout_units")
        if self.attend == "between" and self.cell_type != "gru":
            raise InputError(f"attend='between' requires cell_type='gru'. Received: cell_type={self.cell_type!r}.")


@dataclass(frozen=True, kw_only=True)
class PointerGeneratorOptions(RNNSearchOptions):
    """Options of `PointerGenerator`; the paper has `embedding_dim=128`, `units=256`, `cell_type="lstm"`."""

    one_vocabulary = True

    def check(self) -> None:
        if self.source_vocab_size != self.target_vocab_size:
            raise InputError(
                "Copying requires one shared vocabulary: data.shared_vocabulary=true. Received: "
                f"source_vocab_size={self.source_vocab_size}, target_vocab_size={self.target_vocab_size}."
            )
        super().check()


@dataclass(frozen=True, kw_only=True)
class LuongOptions(RecurrentAttentionOptions, StackedOptions):
    """Options of `Luong`; the paper has `cell_type="lstm"` and `dropout=0.2`."""

    num_layers: int = StackedOptions.with_default("num_layers", 4)
    reverse_source: bool = StackedOptions.with_default("reverse_source", True)
    alignment: str = choice(
        "global",
        ("global", "local_m", "local_p", "monotonic"),
        "Attention to the whole source, or to a window that moves with the target (local_m) or around a predicted "
        "position (local_p). Local weights sum to 1 or less, and are all zero if the window lies after the source"
        f"{_MONOTONIC}",
    )
    window: int = size(10, "Number of positions on each side in local attention, D.")
    input_feeding: bool = flag(True, "Whether the previous attentional state is an input of the decoder.")


_SMALL = {"embedding_dim": 256, "units": 256, "dropout": 0.3}

register_model(
    ModelSpec(
        name="rnnsearch",
        task="seq2seq",
        paper=BAHDANAU,
        summary="Bidirectional GRU encoder, GRU decoder with additive attention, maxout readout. Sizes of the paper: "
        "embedding_dim 620, units 1000, attention_units 1000, readout_units 500.",
        config={**_SMALL, "attention_units": 256, "readout_units": 256},
        model_class="zoo.models.seq2seq.rnnsearch:RNNSearch",
        options=RNNSearchOptions,
    )
)
register_model(
    ModelSpec(
        name="pointer_generator",
        task="seq2seq",
        paper=SEE,
        summary="RNNsearch that also copies tokens of the source; both sides share a vocabulary. Sizes of the paper: "
        "embedding_dim 128, units 256, cell_type lstm, coverage sum.",
        config={**_SMALL, "attention_units": 256, "readout_units": 256, "tied_embeddings": "all"},
        model_class="zoo.models.seq2seq.pointer_generator:PointerGenerator",
        options=PointerGeneratorOptions,
    )
)
register_model(
    ModelSpec(
        name="rnn_encdec",
        task="seq2seq",
        paper=CHO,
        summary="GRU encoder and decoder without attention: the source as one vector of fixed length. Sizes of the "
        "paper: embedding_dim 100, units 1000, readout_units 500. For Sutskever et al. 2014 "
        "(https://arxiv.org/abs/1409.3215): embedding_dim 1000, units 1000, num_layers 4, readout_units 0, cell_type "
        "lstm, feed_summary false, reverse_source true.",
        config={**_SMALL, "readout_units": 256},
        model_class="zoo.models.seq2seq.rnn_encdec:RNNEncoderDecoder",
        options=RNNEncoderDecoderOptions,
    )
)


def _register_luong(name: str, summary: str, **config: str) -> None:
    register_model(
        ModelSpec(
            name=f"luong_{name}",
            task="seq2seq",
            paper=LUONG,
            summary=f"Stacked LSTMs with input feeding, a reversed source and {summary}. Sizes of the paper: "
            "embedding_dim 1000, units 1000, num_layers 4, dropout 0.2, tied_embeddings none.",
            config={**_SMALL, "num_layers": 2, "cell_type": "lstm", "tied_embeddings": "target", **config},
            model_class="zoo.models.seq2seq.luong:Luong",
            options=LuongOptions,
        )
    )


_register_luong("dot", "dot-product attention", score="dot")
_register_luong("general", "bilinear attention")
_register_luong("concat", "attention with a hidden layer as score", score="concat")
_register_luong("location", "attention that depends on positions only", score="location")
_register_luong("local_m", "bilinear attention in a window that moves with the target", alignment="local_m")
_register_luong("local_p", "bilinear attention in a window around a predicted position", alignment="local_p")
