"""BERT (`bert`), also as sentence encoders such as MiniLM and as classifiers."""

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import Imported, register_family
from zoo.checkpoints.families.encoders import SIZES, Encoder, import_encoder, register_encoder
from zoo.checkpoints.wordpiece import wordpiece, wordpiece_files
from zoo.text import WordPieceTokenizer

_POOLER = "belongs to a pooler that is not used"
BERT = register_encoder(
    Encoder(
        name="BERT",
        architecture="Bert",
        model_type="bert",
        prefix="bert.",
        vocab_size=30522,
        tokenizer=WordPieceTokenizer,
        read_tokenizer=wordpiece,
        write_tokenizer=wordpiece_files,
        sizes={**SIZES, "type_vocab_size": ("num_segments", 2)},
        only={"position_embedding_type": ("absolute", "absolute"), "is_decoder": (False, False)},
        head=("{}pooler.dense", "classifier", "tanh"),
        left_out={"cls.": "the heads of masked language modelling and next sentence prediction"},
    )
)


@register_family(
    "bert",
    without_influence={
        "tie_word_embeddings": "belongs to the head of masked language modelling",
        "directionality": "describes the file",
        **dict.fromkeys(("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"), _POOLER),
        **dict.fromkeys(("pooler_size_per_head", "pooler_type"), _POOLER),
    },
)
def bert(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of BERT; see `import_encoder`.

    Raises:
        InputError: If it has options that our models do not support.
    """
    return import_encoder(checkpoint, BERT)
