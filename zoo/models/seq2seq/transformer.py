"""The encoder-decoder Transformer."""

import dataclasses

import keras
from keras import ops

from zoo.layers.core.dropout import Dropout
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.projections import apply_positionwise
from zoo.models.catalog.transformers import EncoderDecoderOptions
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.shared.base import build_all, padding_mask
from zoo.models.shared.embeddings import Embedding, ReversibleEmbedding, make_output, readout_of, to_logits
from zoo.models.shared.transformer_layers import (
    TransformerLayers,
    caches_for,
    can_rewind,
    decoding_cache,
    rewind,
    rewinds_by_row,
    run_encoder_blocks,
)


@keras.saving.register_keras_serializable(package="attention_zoo")
class Transformer(Seq2SeqModel):
    """Encoder-decoder Transformer.

    `p = softmax(W_oᵀ Decoder(Y) + b_o)`; b_o exists only with `output_bias`; if the target embeddings are tied, W_o is
    their transposed table. The inputs of the first block are `√D · E + P`, or `E + P` without `scale_embeddings`.
    Concatenated positions, `[E; P]`, are projected to size D; without `concat_projection`, all activations have the
    size of `[E; P]`. With `embedding_norm`, a layer normalisation follows.

    Cross-attention is always full, and has no positions of its own. With `num_key_value_heads`, heads share keys and
    values in the decoder alone, where each step reads all of them (Ainslie et al. 2023, section 2.2).

    Call arguments and results: see `Seq2SeqModel`.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3, https://arxiv.org/abs/1706.03762;
        Press and Wolf 2017 (tying), https://arxiv.org/abs/1608.05859
    """

    options_class = EncoderDecoderOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._make_embeddings()
        policy = {"dtype": self.dtype_policy}
        encoder_options = dataclasses.replace(self.options, num_key_value_heads=0)
        encoder = TransformerLayers(encoder_options, self.dtype_policy, self.max_length)
        decoder = TransformerLayers(self.options, self.dtype_policy, self.max_length, self.options.decoder_stack)
        self.source_positions = encoder.input_positions("source_positions")
        self.target_positions = decoder.input_positions("target_positions")
        self.source_embedding_norm = self.target_embedding_norm = None
        if self.embedding_norm:
            self.source_embedding_norm = encoder.norm("source_embedding_norm", "layer_norm")
            self.target_embedding_norm = decoder.norm("target_embedding_norm", "layer_norm")
        self.embedding_dropout = Dropout(self.dropout, name="embedding_dropout", **policy)
        self.encoder_blocks, self.decoder_blocks = encoder.encoder_blocks(), decoder.decoder_blocks()
        self.encoder_norm = encoder.final_norm("encoder_norm")
        self.decoder_norm = decoder.final_norm("decoder_norm")
        self.output_layer = make_output(self.options, self.target_vocab_size, self.dtype_policy)

    @property
    def attention_kinds(self):
        has_weights = self.options.decoder_stack.self_attention != "ssru"
        return ("encoder", "cross", "decoder") if has_weights else ("encoder", "cross")

    @property
    def layers_of_steps(self):
        return [*super().layers_of_steps, *(block.self_attention for block in self.decoder_blocks)]

    def _make_embeddings(self):
        def embedding(cls, size, name, **options):
            # With the scaling by √D below, embeddings enter with unit variance and tied logits start small.
            initializer = keras.initializers.RandomNormal(stddev=self.model_dim**-0.5)
            options |= {"embeddings_initializer": initializer, "dtype": self.dtype_policy, "name": name}
            return cls(size, self.model_dim, **options)

        # A table of embeddings cannot compute logits from activations of another size than its vectors.
        reversible = self.options.hidden_dim == self.model_dim
        cls = ReversibleEmbedding if reversible else Embedding
        tying = {"tie_weights": self.tied_embeddings != "none"} if reversible else {}
        self.target_embedding = embedding(cls, self.target_vocab_size, "target_embedding", **tying)
        self.source_embedding = self.target_embedding
        if self.tied_embeddings != "all":
            self.source_embedding = embedding(Embedding, self.source_vocab_size, "source_embedding")

    def build(self, input_shape=None):
        shape = (None, None, self.options.hidden_dim)
        build_all([self.target_embedding, self.source_embedding], (None, None))
        build_all([self.source_positions, self.target_positions], (None, None, self.model_dim))
        build_all(self.encoder_blocks, shape)
        build_all(self.decoder_blocks, shape, shape)
        build_all([self.source_embedding_norm, self.target_embedding_norm], shape)
        build_all([self.encoder_norm, self.decoder_norm, self.output_layer], shape)
        self.built = True

    def _embed_source(self, ids, training):
        embedded = self.source_positions(self.source_embedding(ids) * self.options.embedding_factor)
        if self.source_embedding_norm is not None:
            embedded = self.source_embedding_norm(embedded)
        return self.embedding_dropout(embedded, training=training)

    def _embed_target(self, ids, training=None, start_index=0):
        embedded = self.target_embedding(ids) * self.options.embedding_factor
        embedded = self.target_positions(embedded, start_index=start_index)
        if self.target_embedding_norm is not None:
            embedded = self.target_embedding_norm(embedded)
        return self.embedding_dropout(embedded, training=training)

    def _run_encoder(self, source, training=None, return_attention_scores=False):
        """Returns the vectors of the source, [B, S, D], and the weights of each block if requested."""
        hidden, mask = self._embed_source(source, training), padding_mask(source)
        return run_encoder_blocks(
            self.encoder_blocks, hidden, self.encoder_norm, return_attention_scores, mask=mask, training=training
        )

    def encode(self, source, training=None):
        return self._memory(source, self._run_encoder(source, training)[0])

    def _memory(self, source, hidden):
        # The keys and values of cross-attention are the same at all steps.
        return {"mask": padding_mask(source), "layers": [block.project_memory(hidden) for block in self.decoder_blocks]}

    def represent(self, source):
        return self._run_encoder(source)[0]

    def attentions(self, source, target):
        hidden, encoder = self._run_encoder(source, return_attention_scores=True)
        returned = {"return_attention_scores": True}
        if "decoder" in self.attention_kinds:
            returned["return_self_attention_scores"] = True
        _, cross, *decoder = self._run_decoder(target, self._memory(source, hidden), **returned)
        weights = {"encoder": ops.stack(encoder, axis=1), "cross": cross}
        return {**weights, "decoder": decoder[0]} if decoder else weights

    def readout(self, tokens):
        return readout_of(tokens, self.target_embedding, self.output_layer)

    def _logits(self, hidden, readout=None):
        if self.decoder_norm is not None:
            hidden = self.decoder_norm(hidden)
        if readout is not None:
            return readout(hidden)
        return apply_positionwise(lambda rows: to_logits(rows, self.target_embedding, self.output_layer), hidden)

    def _run_decoder(self, target, memory, training=None, **returned):
        """Returns the outputs of the decoder, [B, T, D], and the requested weights [B, layers, N, T, S]."""
        hidden, weights = self._embed_target(target, training), []
        masks = {"mask": padding_mask(target), "memory_mask": memory["mask"]}
        for block, projected in zip(self.decoder_blocks, memory["layers"], strict=True):
            results = block(hidden, projected, **masks, **returned, training=training)
            hidden, *scores = results if returned else [results]
            weights.append(scores)
        return hidden, *(ops.stack(kind, axis=1) for kind in zip(*weights, strict=True))

    def call(self, inputs, training=None):
        memory = self.encode(inputs["source"], training=training)
        return self._logits(self._run_decoder(inputs["target"], memory, training)[0])

    def decode(self, target, memory, training=None):
        hidden, weights = self._run_decoder(target, memory, training, return_attention_scores=True)
        return self._logits(hidden), weights

    def initial_state(self, memory, max_length=None, sharing=1):
        batch = ops.shape(memory["mask"])[0] * sharing
        return {
            "index": ops.zeros((), dtype="int32"),
            "caches": [decoding_cache(block.self_attention, batch, max_length) for block in self.decoder_blocks],
        }

    def _continue(self, tokens, state, memory, **arguments):
        """Returns the outputs for the target tokens [B, T] after those of a state, the weights, and the new state."""
        hidden, num_tokens = self._embed_target(tokens, start_index=state["index"]), axis_size(tokens, 1)
        before, caches, weights = caches_for(state, num_tokens), [], []
        for block, projected, cache in zip(self.decoder_blocks, memory["layers"], before, strict=True):
            hidden, *scores, cache = block(hidden, projected, memory_mask=memory["mask"], cache=cache, **arguments)
            caches.append(cache)
            weights += scores
        return hidden, weights, {"index": state["index"] + num_tokens, "caches": caches}

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        arguments = {"return_attention_scores": return_attention_scores, "sharing": sharing}
        hidden, weights, state = self._continue(ops.expand_dims(last, 1), state, memory, **arguments)
        weights = [ops.stack(weights, axis=1)[:, :, :, 0]] if return_attention_scores else []
        return self._logits(ops.squeeze(hidden, 1), readout), *weights, state

    def decode_steps(self, tokens, state, memory, readout=None):
        hidden, _, state = self._continue(tokens, state, memory)
        return self._logits(hidden, readout), state

    @property
    def shares_vocabulary(self):
        return self.source_embedding is self.target_embedding

    @property
    def can_rewind(self):
        return all(can_rewind(block.self_attention) for block in self.decoder_blocks)

    @property
    def rewinds_by_row(self):
        return not any(block.cross_attention.needs_query_position for block in self.decoder_blocks) and all(
            rewinds_by_row(block.self_attention) for block in self.decoder_blocks
        )

    def rewind(self, state, counts):
        return rewind(state, counts)
