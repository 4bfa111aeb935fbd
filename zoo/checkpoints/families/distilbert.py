"""DistilBERT (`distilbert`): BERT with half as many layers and without segments and pooler."""

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import Imported, register_family
from zoo.checkpoints.families.encoders import Encoder, import_encoder, register_encoder
from zoo.checkpoints.wordpiece import wordpiece, wordpiece_files
from zoo.text import WordPieceTokenizer

_HEAD = "the head of masked language modelling"
DISTILBERT = register_encoder(
    Encoder(
        name="DistilBERT",
        architecture="DistilBert",
        model_type="distilbert",
        prefix="distilbert.",
        vocab_size=30522,
        tokenizer=WordPieceTokenizer,
        read_tokenizer=wordpiece,
        write_tokenizer=lambda tokenizer: wordpiece_files(tokenizer, kind="DistilBertTokenizer"),
        sizes={
            "n_layers": ("num_layers", 6),
            "n_heads": ("num_heads", 12),
            "dim": ("model_dim", 768),
            "hidden_dim": ("intermediate_dim", 3072),
            "dropout": ("dropout", 0.1),
            "attention_dropout": ("attention_dropout", 0.1),
        },
        activation="activation",
        fixed={"num_segments": 0, "epsilon": 1e-12},
        layers="transformer.layer",
        parts=(
            *(f"attention.{name}_lin" for name in ("q", "k", "v", "out")),
            "ffn.lin1",
            "ffn.lin2",
        ),
        norms=("sa_layer_norm", "output_layer_norm"),
        head=("pre_classifier", "classifier", "relu"),
        left_out=dict.fromkeys(("vocab_transform.", "vocab_layer_norm.", "vocab_projector."), _HEAD),
    )
)


@register_family(
    "distilbert",
    without_influence={
        **dict.fromkeys(("tie_word_embeddings", "tie_weights_"), f"belongs to {_HEAD}"),
        **dict.fromkeys(("qa_dropout", "seq_classif_dropout"), "acts in training alone"),
        "sinusoidal_pos_embds": "the checkpoint has the table of positions",
    },
)
def distilbert(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of DistilBERT; see `import_encoder`.

    Raises:
        InputError: If it has options that our models do not support.

    Reference:
        Sanh et al. 2019, "DistilBERT", section 3, https://arxiv.org/abs/1910.01108
    """
    return import_encoder(checkpoint, DISTILBERT)
