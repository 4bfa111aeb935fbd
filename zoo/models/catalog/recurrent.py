"""Recurrent sequence-to-sequence models."""

from zoo.models.catalog.options import SEQ2SEQ
from zoo.registry import ModelSpec, Paper, register_model

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


def _register(name, paper, summary, model_class, **config):
    config = {"embedding_dim": 256, "units": 256, "dropout": 0.3, "start_state": "encoder", **config}
    register_model(ModelSpec(name, "seq2seq", paper, summary, config, model_class, required=SEQ2SEQ))


def _register_luong(name, summary, score="general", alignment="global"):
    _register(
        f"luong_{name}",
        LUONG,
        f"Stacked LSTMs with input feeding, a reversed source and {summary}. The paper's sizes are embedding_dim 1000, "
        "units 1000, num_layers 4, dropout 0.2, tied_embeddings none.",
        "zoo.models.seq2seq.luong:Luong",
        num_layers=2,
        cell_type="lstm",
        score=score,
        alignment=alignment,
        window=10,
        max_length=512,
        input_feeding=True,
        reverse_source=True,
        bidirectional=False,
        tied_embeddings="target",
    )


_register(
    "rnn_encdec",
    CHO,
    "GRU encoder and decoder without attention: the source in one vector of fixed length. The paper's sizes are "
    "embedding_dim 100, units 1000, readout_units 500. For Sutskever et al. 2014 (https://arxiv.org/abs/1409.3215): "
    "embedding_dim 1000, units 1000, num_layers 4, readout_units 0, cell_type lstm, feed_summary false, "
    "reverse_source true.",
    "zoo.models.seq2seq.rnn_encdec:RNNEncoderDecoder",
    num_layers=1,
    readout_units=256,
    cell_type="gru",
    feed_summary=True,
    reverse_source=False,
    tied_embeddings="none",
)
_register(
    "rnnsearch",
    BAHDANAU,
    "Bidirectional GRU encoder, GRU decoder with additive attention, maxout readout. The paper's sizes are "
    "embedding_dim 620, units 1000, attention_units 1000, readout_units 500.",
    "zoo.models.seq2seq.rnnsearch:RNNSearch",
    attention_units=256,
    readout_units=256,
    cell_type="gru",
    tied_embeddings="none",
)
_register_luong("dot", "dot-product attention", score="dot")
_register_luong("general", "bilinear attention")
_register_luong("concat", "attention scored by a hidden layer", score="concat")
_register_luong("location", "attention to places alone", score="location")
_register_luong("local_m", "bilinear attention in a window that moves with the target", alignment="local_m")
_register_luong("local_p", "bilinear attention in a window around a predicted place", alignment="local_p")
