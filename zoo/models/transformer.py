"""The encoder-decoder Transformer."""

import keras
from keras import ops

from zoo import layers
from zoo.errors import InputError
from zoo.models.checks import check_dropout, check_sizes
from zoo.models.ids import real
from zoo.models.seq2seq import Seq2SeqModel


@keras.saving.register_keras_serializable(package="attention_zoo")
class Transformer(Seq2SeqModel):
    """Encoder-decoder Transformer.

    Args:
        source_vocab_size: Number of source symbols.
        target_vocab_size: Number of target symbols.
        num_layers: Blocks in the encoder, and in the decoder.
        model_dim: Size of the activations, D.
        intermediate_dim: Size inside the feed-forward networks.
        num_heads: Heads of each attention; divides `model_dim`.
        dropout: Rate of dropout on embeddings and on the result of each part of a block.
        normalize_first: Pre-norm instead of post-norm blocks.
        tied_embeddings: `"all"`: one matrix for source, target and output, for a shared vocabulary; `"target"`: one for
            target and output; `"none"`; `"auto"`: `"all"` where the vocabularies are equally large, else `"target"`.

    Call arguments and results: see `Seq2SeqModel`.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3, https://arxiv.org/abs/1706.03762;
        Press and Wolf 2017 (tying), https://arxiv.org/abs/1608.05859
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        num_layers=6,
        model_dim=512,
        intermediate_dim=2048,
        num_heads=8,
        dropout=0.1,
        normalize_first=False,
        tied_embeddings="auto",
        **kwargs,
    ):
        super().__init__(source_vocab_size, target_vocab_size, **kwargs)
        check_dropout(dropout)
        check_sizes(num_layers=num_layers, model_dim=model_dim, intermediate_dim=intermediate_dim, num_heads=num_heads)
        if model_dim % num_heads or model_dim % 2:
            raise InputError(
                f"`model_dim` must be even and a multiple of `num_heads`. "
                f"Received: model_dim={model_dim}, num_heads={num_heads}."
            )
        self.num_layers = num_layers
        self.model_dim = model_dim
        self.intermediate_dim = intermediate_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.tied_embeddings = self._resolve_tying(tied_embeddings)
        self._make_embeddings()
        self.positions = layers.SinusoidalPositions(dtype=self.dtype_policy, name="positions")
        self.embedding_dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="embedding_dropout")
        self.encoder_blocks = [self._encoder_block(index) for index in range(num_layers)]
        self.decoder_blocks = [self._decoder_block(index) for index in range(num_layers)]
        self.encoder_norm = self._final_norm("encoder_norm")
        self.decoder_norm = self._final_norm("decoder_norm")

    def _resolve_tying(self, tied):
        same_size = self.source_vocab_size == self.target_vocab_size
        if tied not in ("auto", "all", "target", "none"):
            raise InputError(f"`tied_embeddings` must be auto, all, target or none. Received: {tied!r}.")
        if tied == "all" and not same_size:
            raise InputError(
                "`tied_embeddings='all'` needs one shared vocabulary; use 'target' for separate ones. Received: "
                f"source_vocab_size={self.source_vocab_size}, target_vocab_size={self.target_vocab_size}."
            )
        return ("all" if same_size else "target") if tied == "auto" else tied

    def _make_embeddings(self):
        def embedding(size, name, tied):
            layer = keras.layers.ReversibleEmbedding(
                size,
                self.model_dim,
                tie_weights=tied,
                # With the scaling by √D below, embeddings enter with unit variance and tied logits start small.
                embeddings_initializer=keras.initializers.RandomNormal(stddev=self.model_dim**-0.5),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.supports_masking = True  # the output projection is position-wise
            return layer

        self.target_embedding = embedding(self.target_vocab_size, "target_embedding", self.tied_embeddings != "none")
        self.source_embedding = self.target_embedding
        if self.tied_embeddings != "all":
            self.source_embedding = embedding(self.source_vocab_size, "source_embedding", True)

    def _attention(self, name):
        return layers.MultiHeadAttention(
            self.num_heads, self.model_dim // self.num_heads, dtype=self.dtype_policy, name=name
        )

    def _block_arguments(self, name):
        feed_forward = layers.FeedForward(self.intermediate_dim, dtype=self.dtype_policy, name="feed_forward")
        return {
            "feed_forward": feed_forward,
            "normalize_first": self.normalize_first,
            "dropout": self.dropout,
            "dtype": self.dtype_policy,
            "name": name,
        }

    def _encoder_block(self, index):
        return layers.TransformerEncoderBlock(
            self._attention("attention"), **self._block_arguments(f"encoder_block_{index}")
        )

    def _decoder_block(self, index):
        return layers.TransformerDecoderBlock(
            self._attention("self_attention"),
            self._attention("cross_attention"),
            **self._block_arguments(f"decoder_block_{index}"),
        )

    def _final_norm(self, name):
        # Post-norm blocks end with a normalisation of their own.
        if not self.normalize_first:
            return None
        return keras.layers.LayerNormalization(epsilon=1e-5, dtype=self.dtype_policy, name=name)

    def build(self, input_shape=None):
        shape = (None, None, self.model_dim)
        self.target_embedding.build((None, None))
        if self.source_embedding is not self.target_embedding:
            self.source_embedding.build((None, None))
        for block in self.encoder_blocks:
            block.build(shape)
        for block in self.decoder_blocks:
            block.build(shape, shape)
        for norm in (self.encoder_norm, self.decoder_norm):
            if norm is not None:
                norm.build(shape)
        self.built = True

    def _embed(self, embedding, ids, training=None, start_index=0):
        embedded = embedding(ids) * self.model_dim**0.5
        return self.embedding_dropout(self.positions(embedded, start_index=start_index), training=training)

    def encode(self, source, training=None):
        mask = real(source)
        hidden = self._embed(self.source_embedding, source, training)
        for block in self.encoder_blocks:
            hidden = block(hidden, mask=mask, training=training)
        if self.encoder_norm is not None:
            hidden = self.encoder_norm(hidden)
        # Keys and values of the cross-attention, once for all steps.
        return {"mask": mask, "layers": [block.project_memory(hidden) for block in self.decoder_blocks]}

    def _logits(self, hidden):
        if self.decoder_norm is not None:
            hidden = self.decoder_norm(hidden)
        return self.target_embedding(hidden, reverse=True)

    def decode(self, target, memory, training=None):
        mask = real(target)
        hidden = self._embed(self.target_embedding, target, training)
        weights = []
        for block, projected in zip(self.decoder_blocks, memory["layers"], strict=True):
            hidden, scores = block(
                hidden,
                projected,
                mask=mask,
                memory_mask=memory["mask"],
                return_attention_scores=True,
                training=training,
            )
            weights.append(scores)
        return self._logits(hidden), ops.stack(weights, axis=1)

    def initial_state(self, memory, max_length):
        batch = ops.shape(memory["mask"])[0]
        return {
            "index": ops.zeros((), dtype="int32"),
            "caches": [block.self_attention.create_cache(batch, max_length) for block in self.decoder_blocks],
        }

    def decode_step(self, last, state, memory):
        hidden = self._embed(self.target_embedding, ops.expand_dims(last, 1), start_index=state["index"])
        caches = []
        for block, projected, cache in zip(self.decoder_blocks, memory["layers"], state["caches"], strict=True):
            hidden, cache = block(hidden, projected, memory_mask=memory["mask"], cache=cache)
            caches.append(cache)
        return ops.squeeze(self._logits(hidden), 1), {"index": state["index"] + 1, "caches": caches}

    def get_config(self):
        names = ("num_layers", "model_dim", "intermediate_dim", "num_heads", "dropout", "normalize_first")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
            "tied_embeddings": self.tied_embeddings,
        }
