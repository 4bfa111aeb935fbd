"""Worker: Hugging Face's Marian, on PyTorch: `python hugging_face.py TASK`."""

import pytorch  # the worker beside this one
from torch import nn
from transformers import MarianConfig, MarianMTModel
from worker import PAD


class Translator(nn.Module):
    """Marian's post-norm encoder and decoder with one matrix for all embeddings and the output.

    Args:
        task: The task.
    """

    def __init__(self, task):
        super().__init__()
        sides = ("encoder", "decoder")
        config = MarianConfig(
            vocab_size=task["vocabulary"],
            d_model=task["dim"],
            **{f"{side}_layers": task["layers"] for side in sides},
            **{f"{side}_attention_heads": task["heads"] for side in sides},
            **{f"{side}_ffn_dim": task["hidden"] for side in sides},
            dropout=task["dropout"],
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            init_std=task["dim"] ** -0.5,
            scale_embedding=True,
            max_position_embeddings=256,
            pad_token_id=PAD,
            eos_token_id=2,
            decoder_start_token_id=1,
            use_cache=False,
        )
        self.model = MarianMTModel._from_config(config, attn_implementation="sdpa")

    def forward(self, source, target):
        return self.model(input_ids=source, attention_mask=source != PAD, decoder_input_ids=target).logits


if __name__ == "__main__":
    pytorch.serve(Translator, ["transformers", "torch"])
