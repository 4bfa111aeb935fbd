"""The decoder-only Transformer."""

import keras
from keras import backend, ops

from zoo.layers.core.dropout import Dropout
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.projections import apply_positionwise
from zoo.models.catalog.language_models import CausalLMOptions
from zoo.models.language_models.base import LanguageModel
from zoo.models.shared.base import build_all
from zoo.models.shared.embeddings import Embedding, ReversibleEmbedding, make_output, to_logits
from zoo.models.shared.transformer_layers import (
    TransformerLayers,
    caches_for,
    can_rewind,
    decoding_cache,
    rewind,
    rewinds_by_row,
    run_encoder_blocks,
)

# Small, so that a new model with tied embeddings does not predict that each token is followed by itself.
EMBEDDING_STDDEV = 0.02


@keras.saving.register_keras_serializable(package="attention_zoo")
class CausalLM(LanguageModel):
    """Transformer that predicts each token from the previous ones.

    The last projection of each part of a block is initialised with values `√(2 · num_layers)` times smaller than usual,
    so that the variance of the sum of all parts does not depend on the depth.

    `p = softmax(z)` with logits `z = W_oᵀ h + b_o`; W_o is the transposed table of tied embeddings, and b_o requires
    `output_bias`. With an `output_softcap` c the logits are `c · tanh(z / c)`, in float32 or wider. The inputs of the
    first block are `√D · E + P`, or `E + P` without `scale_embeddings`, or concatenated, `[E; P]`.

    Call arguments and results: see `LanguageModel`.

    Reference:
        Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", sections 3.1 and 4.1;
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3 (pre-norm, small
        residual terms); Press and Wolf 2017 (tying), https://arxiv.org/abs/1608.05859; Gemma Team 2024, "Gemma 2:
        Improving Open Language Models at a Practical Size", section 2 (capped logits),
        https://arxiv.org/abs/2408.00118
    """

    options_class = CausalLMOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.other_end_ids = self.options.other_end_ids
        policy = self.dtype_policy
        table = {
            "embeddings_initializer": keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV),
            "dtype": policy,
            "name": "embedding",
        }
        if self.options.hidden_dim == self.model_dim:
            table["tie_weights"] = self.tied_embeddings
            self.embedding = ReversibleEmbedding(self.vocab_size, self.model_dim, **table)
        else:
            self.embedding = Embedding(self.vocab_size, self.model_dim, **table)
        make = TransformerLayers(self.options, policy, self.max_length)
        self.input_positions = make.input_positions()
        self.embedding_dropout = Dropout(self.dropout, dtype=policy, name="embedding_dropout")
        self.blocks = make.encoder_blocks(causal=True, name="block")
        self.final_norm = make.final_norm("final_norm")
        self.output_layer = make_output(self.options, self.vocab_size, policy)

    @property
    def attention_kinds(self):
        return () if self.self_attention == "ssru" else ("decoder",)

    @property
    def layers_of_steps(self):
        return [*super().layers_of_steps, *(block.attention for block in self.blocks)]

    def build(self, input_shape=None):
        self.embedding.build((None, None))
        build_all([self.input_positions], (None, None, self.model_dim))
        build_all([*self.blocks, self.final_norm, self.output_layer], (None, None, self.options.hidden_dim))
        self._shrink_residuals()
        self.built = True

    def _shrink_residuals(self):
        """Divides the last projection of each part of each block by the square root of the number of parts."""
        for block in self.blocks:
            for part in (block.attention, block.feed_forward):
                if part.output_dense is not None:  # `None` in SSRUs and without W_o
                    kernel = part.output_dense.kernel
                    kernel.assign(kernel / (2 * self.num_layers) ** 0.5)

    def _embed(self, tokens, training=None, start_index=0):
        embedded = self.input_positions(self.embedding(tokens) * self.options.embedding_factor, start_index=start_index)
        return self.embedding_dropout(embedded, training=training)

    def _logits(self, hidden):
        return apply_positionwise(self._logits_of_rows, hidden)

    def _logits_of_rows(self, rows):
        logits = to_logits(rows, self.embedding, self.output_layer)
        if not self.output_softcap:
            return logits
        logits = ops.cast(logits, backend.result_type(logits.dtype, "float32"))
        return self.output_softcap * ops.tanh(logits / self.output_softcap)

    def _run(self, tokens, training=None, return_attention_scores=False):
        """Returns the vectors of the tokens, [B, T, D], and the weights of each block if requested."""
        # No mask for padding, which is at the end: with a causal mask, no real token attends to it.
        return run_encoder_blocks(
            self.blocks,
            self._embed(tokens, training),
            self.final_norm,
            return_attention_scores,
            use_causal_mask=True,
            training=training,
        )

    def call(self, inputs, training=None):
        return self._logits(self._run(inputs["tokens"], training)[0])

    def represent(self, tokens):
        return self._run(tokens)[0]

    def attentions(self, tokens):
        return {"decoder": ops.stack(self._run(tokens, return_attention_scores=True)[1], axis=1)}

    def initial_state(self, batch_size, max_length=None):
        return {
            "index": ops.zeros((), dtype="int32"),
            "caches": [decoding_cache(block.attention, batch_size, max_length) for block in self.blocks],
        }

    def _continue(self, tokens, state):
        """Returns the outputs of the last block for tokens [B, T] that follow a state, and the new state."""
        num_tokens = axis_size(tokens, 1)
        hidden, caches = self._embed(tokens, start_index=state["index"]), []
        for block, cache in zip(self.blocks, caches_for(state, num_tokens), strict=True):
            hidden, cache = block(hidden, cache=cache)
            caches.append(cache)
        return hidden, {"index": state["index"] + num_tokens, "caches": caches}

    def prefill(self, tokens, state):
        hidden, state = self._continue(tokens, state)
        last = hidden[:, -1] if self.final_norm is None else self.final_norm(hidden[:, -1])
        return self._logits(last), state

    def read(self, tokens, state):
        return self._continue(tokens, state)[1]

    def decode_steps(self, tokens, state):
        hidden, state = self._continue(tokens, state)
        return self._logits(hidden if self.final_norm is None else self.final_norm(hidden)), state

    @property
    def can_rewind(self):
        return all(can_rewind(block.attention) for block in self.blocks)

    @property
    def rewinds_by_row(self):
        return all(rewinds_by_row(block.attention) for block in self.blocks)

    def rewind(self, state, counts):
        return rewind(state, counts)
