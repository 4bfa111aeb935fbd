"""MPNet (`mpnet`): BERT without segments, with relative position biases that all layers share."""

from collections.abc import Iterator
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.encoder_tokenizers import NAMES
from zoo.checkpoints.families.base import Imported, register_family
from zoo.checkpoints.families.encoders import Encoder, import_encoder, register_encoder
from zoo.checkpoints.families.layouts import Columns, Mapped, Transposed
from zoo.checkpoints.vocabulary import Arrangement
from zoo.checkpoints.wordpiece import wordpiece, wordpiece_files
from zoo.text import WordPieceTokenizer

_NAMES = {**{key: name for key, name in NAMES.items() if key != "mask_token"}, "unk_token": "[UNK]"}
_BUCKETS = 32


def _read(checkpoint: Checkpoint, size: int) -> tuple[WordPieceTokenizer, Arrangement]:
    return wordpiece(checkpoint, size, _NAMES)


def _write(tokenizer: WordPieceTokenizer) -> tuple[dict[str, Any], Arrangement]:
    files, order = wordpiece_files(tokenizer, _NAMES, "MPNetTokenizer")
    around = {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": False}
    files["tokenizer.json"]["post_processor"] |= around  # puts two ends between the texts of a pair
    return files, order


def _biases(model: Any) -> Iterator[Mapped]:
    positions = model.encoder_blocks[0].attention.positions
    yield Mapped("encoder.relative_attention_bias.weight", (positions.embeddings,), Transposed(Columns()))


MPNET = register_encoder(
    Encoder(
        name="MPNet",
        architecture="MPNet",
        model_type="mpnet",
        prefix="mpnet.",
        vocab_size=30527,
        tokenizer=WordPieceTokenizer,
        read_tokenizer=_read,
        write_tokenizer=_write,
        only={"relative_attention_num_buckets": (_BUCKETS, _BUCKETS)},
        fixed={"num_segments": 0, "positions": "learned_t5"},
        padding=1,
        parts=(*(f"attention.attn.{letter}" for letter in "qkvo"), "intermediate.dense", "output.dense"),
        norms=("attention.LayerNorm", "output.LayerNorm"),
        more=_biases,
    )
)


@register_family(
    "mpnet",
    without_influence={"tie_word_embeddings": "belongs to the head of masked language modelling"},
)
def mpnet(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of MPNet; see `import_encoder`.

    Learned positions are added to the embeddings, and T5's biases to the scores.

    Raises:
        InputError: If it has options that our models do not support.

    Reference:
        Song et al. 2020, "MPNet", section 3, https://arxiv.org/abs/2004.09297
    """
    return import_encoder(checkpoint, MPNET)
