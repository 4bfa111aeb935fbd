"""RoBERTa (`roberta`) and XLM-RoBERTa (`xlm-roberta`): BERT without segments, with other tokenizers."""

import dataclasses

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.encoder_tokenizers import (
    roberta_files,
    roberta_tokenizer,
    xlm_roberta_files,
    xlm_roberta_tokenizer,
)
from zoo.checkpoints.families.base import Imported, register_family
from zoo.checkpoints.families.encoders import Encoder, import_encoder, register_encoder
from zoo.text import ByteLevelBPETokenizer, ReorderedSubwordTokenizer

ROBERTA = register_encoder(
    Encoder(
        name="RoBERTa",
        architecture="Roberta",
        model_type="roberta",
        prefix="roberta.",
        vocab_size=50265,
        tokenizer=ByteLevelBPETokenizer,
        read_tokenizer=roberta_tokenizer,
        write_tokenizer=roberta_files,
        only={
            "position_embedding_type": ("absolute", "absolute"),
            "is_decoder": (False, False),
            "pad_token_id": (1, 1),
            "type_vocab_size": (2, 1),
        },
        padding=1,
    )
)
XLM_ROBERTA = register_encoder(
    dataclasses.replace(
        ROBERTA,
        name="XLM-RoBERTa",
        architecture="XLMRoberta",
        model_type="xlm-roberta",
        vocab_size=30522,
        tokenizer=ReorderedSubwordTokenizer,
        read_tokenizer=xlm_roberta_tokenizer,
        write_tokenizer=xlm_roberta_files,
    )
)
_WITHOUT_INFLUENCE = {"tie_word_embeddings": "belongs to the head of masked language modelling"}


@register_family("roberta", without_influence=_WITHOUT_INFLUENCE)
def roberta(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of RoBERTa; see `import_encoder`.

    Its positions are numbered from the id after that of padding: the rows before it are for padding, and unused here.

    Raises:
        InputError: If it has options that our models do not support.

    Reference:
        Liu et al. 2019, "RoBERTa", section 3, https://arxiv.org/abs/1907.11692
    """
    return import_encoder(checkpoint, ROBERTA)


@register_family("xlm-roberta", without_influence=_WITHOUT_INFLUENCE)
def xlm_roberta(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of XLM-RoBERTa, a RoBERTa with a SentencePiece tokenizer; see `import_encoder`.

    Raises:
        InputError: If it has options that our models do not support.

    Reference:
        Conneau et al. 2020, "Unsupervised Cross-lingual Representation Learning at Scale", section 3,
        https://arxiv.org/abs/1911.02116
    """
    return import_encoder(checkpoint, XLM_ROBERTA)
