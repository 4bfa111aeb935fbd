"""Planted faults: models of sequence to sequence, and what all models share."""

from tests.mutants.mutant import Mutant

_MODELS = "tests/zoo/models"
_EVERY = f"{_MODELS}/test_every_model.py::test_named_model"
FORMULAS = (f"{_MODELS}/shared/test_transformers_by_formula.py",)
RECURRENT_FORMULAS = (f"{_MODELS}/seq2seq/test_recurrent_by_formula.py",)
RECURRENT = (f"{_MODELS}/seq2seq/test_recurrent_models.py",)
TRANSFORMER = (f"{_MODELS}/seq2seq/test_transformer.py",)
POINTER = (f"{_MODELS}/seq2seq/test_pointer_generator.py",)
CONVS2S = (f"{_MODELS}/seq2seq/test_convs2s.py",)
VISIBILITY = (f"{_MODELS}/shared/test_visibility_options.py",)
KINDS = (f"{_MODELS}/shared/test_self_attention_options.py",)
GEMMA = (f"{_MODELS}/language_models/test_gemma_options.py",)
_TRANSFORMER = "zoo/models/seq2seq/transformer.py"
_LAYERS = "zoo/models/shared/transformer_layers.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "the embeddings of the target enter without their factor",
        _TRANSFORMER,
        "embedded = self.target_embedding(ids) * self.options.embedding_factor",
        "embedded = self.target_embedding(ids)",
        (f"{_MODELS}/shared/test_scale_embeddings.py",),
    ),
    Mutant(
        "a table of the target alone does not give the logits",
        _TRANSFORMER,
        '"tie_weights": self.tied_embeddings != "none"',
        '"tie_weights": self.tied_embeddings == "all"',
        TRANSFORMER,
    ),
    Mutant(
        "the encoder shares its keys and values as the decoder does",
        _TRANSFORMER,
        "dataclasses.replace(self.options, num_key_value_heads=0)",
        "self.options",
        TRANSFORMER,
    ),
    Mutant(
        "the padding of the source is not hidden from the decoder",
        _TRANSFORMER,
        'memory_mask=memory["mask"],\n                return_attention_scores=True,',
        "memory_mask=None,\n                return_attention_scores=True,",
        (f"{_EVERY}[transformer_small]",),
    ),
    Mutant(
        "the padding of the source is not hidden from a step of decoding",
        _TRANSFORMER,
        'memory_mask=memory["mask"],\n                return_attention_scores=return_attention_scores,',
        "memory_mask=None,\n                return_attention_scores=return_attention_scores,",
        (f"{_EVERY}[transformer_small]",),
    ),
    Mutant(
        "every step of decoding has the first position",
        _TRANSFORMER,
        'self._embed_target(ops.expand_dims(last, 1), start_index=state["index"])',
        "self._embed_target(ops.expand_dims(last, 1))",
        FORMULAS,
    ),
    Mutant(
        "the decoder's last norm is left out in a step of decoding",
        _TRANSFORMER,
        "        if self.decoder_norm is not None:",
        "        if self.decoder_norm is not None and len(hidden.shape) == 3:",
        (f"{_EVERY}[transformer_small]",),
    ),
    Mutant(
        "the encoder's last norm is left out",
        _LAYERS,
        "return hidden if norm is None else norm(hidden), weights",
        "return hidden, weights",
        FORMULAS,
    ),
    Mutant(
        "a post-norm block normalises before it adds",
        "zoo/layers/blocks/transformer_base.py",
        "return summed if self.normalize_first else self.norms[index](summed)",
        "return summed if self.normalize_first else inputs + self.norms[index](outputs)",
        FORMULAS,
    ),
    Mutant(
        "a pre-norm block adds what it has normalised",
        "zoo/layers/blocks/transformer_base.py",
        "return self.norms[index](inputs) if self.normalize_first else inputs",
        "return self.norms[0](inputs) if self.normalize_first else inputs",
        FORMULAS,
    ),
    Mutant(
        "windows and full attention are counted from the first block",
        _LAYERS,
        "(block + 1) % every",
        "block % every",
        GEMMA,
    ),
    Mutant(
        "the window of a language model sees what follows",
        _LAYERS,
        "0 if causal else None",
        "None",
        VISIBILITY,
    ),
    Mutant(
        "each convolution has the width of the next block",
        _LAYERS,
        "options.kernel_width(block), options",
        "options.kernel_width(block + 1), options",
        KINDS,
    ),
    Mutant(
        "the first lambda of differential attention does not depend on the block",
        _LAYERS,
        "math.exp(-0.3 * block)",
        "math.exp(-0.3)",
        KINDS,
    ),
    Mutant(
        "a cache keeps everything, however little is seen",
        _LAYERS,
        "attention.kept_first + reach < max_length",
        "False",
        VISIBILITY,
    ),
    Mutant(
        "each layer has relative positions of T5 of its own",
        _LAYERS,
        "return [self._positions(causal)] * self.num_layers",
        "return [self._positions(causal) for _ in range(self.num_layers)]",
        TRANSFORMER,
    ),
    Mutant(
        "ALiBi doubles the other side",
        "zoo/models/shared/positions.py",
        "distances(query_positions, key_positions) > 0",
        "distances(query_positions, key_positions) < 0",
        TRANSFORMER,
    ),
    Mutant(
        "concatenated positions keep the size of the embeddings",
        "zoo/models/shared/positions.py",
        '"size": self.size or None',
        '"size": None',
        FORMULAS,
    ),
    Mutant(
        "logits have no bias, though they should",
        "zoo/models/shared/embeddings.py",
        "return logits if output is None else output(logits)",
        "return logits",
        FORMULAS,
    ),
    Mutant(
        "a transposed table outlives its context",
        "zoo/models/shared/embeddings.py",
        "            table._transposed = None",
        "            pass",
        (f"{_MODELS}/shared/test_embeddings.py",),
    ),
    Mutant(
        "RNNsearch starts from the state that has read the first word alone",
        "zoo/models/seq2seq/rnnsearch.py",
        "annotations[:, 0, self._encoder_units :]",
        "annotations[:, 0, : self._encoder_units]",
        RECURRENT_FORMULAS,
    ),
    Mutant(
        "alignments are those of the step after",
        "zoo/models/seq2seq/rnnsearch.py",
        'queries = ops.concatenate([memory["start"][0][:, None], queries[:, :-1]], axis=1)',
        "pass",
        RECURRENT_FORMULAS,
    ),
    Mutant(
        "the readout of RNNsearch has the wrong order",
        "zoo/models/seq2seq/rnnsearch.py",
        "ops.concatenate([recurrent, embedded], axis=-1)",
        "ops.concatenate([embedded, recurrent], axis=-1)",
        RECURRENT_FORMULAS,
    ),
    Mutant(
        "Luong's encoder reads padding",
        "zoo/models/seq2seq/luong.py",
        "annotations, start = self.encoder(embedded, mask=mask,",
        "annotations, start = self.encoder(embedded, mask=None,",
        RECURRENT_FORMULAS,
    ),
    Mutant(
        "the decoder is fed with the context, not with what it made of it",
        "zoo/layers/recurrent/luong_cell.py",
        "[*states, attentional] if self.input_feeding else states",
        "[*states, ops.zeros_like(attentional)] if self.input_feeding else states",
        RECURRENT_FORMULAS,
    ),
    Mutant(
        "the decoder attends with its state before the step",
        "zoo/layers/recurrent/luong_cell.py",
        "        states = update(inputs, states)\n        query = states[self.query_index]",
        "        query = states[self.query_index]\n        states = update(inputs, states)",
        RECURRENT_FORMULAS,
    ),
    Mutant(
        "a reversed encoder returns its outputs in the order of its reading",
        "zoo/models/seq2seq/recurrent_layers.py",
        "ops.flip(hidden, axis=1) if self.reverse else hidden",
        "hidden",
        RECURRENT,
    ),
    Mutant(
        "an encoder drops what enters its first layer, too",
        "zoo/models/seq2seq/recurrent_layers.py",
        "            if number:\n",
        "            if True:\n",
        RECURRENT,
    ),
    Mutant(
        "the summary is that of the lowest layer",
        "zoo/models/seq2seq/rnn_encdec.py",
        "states[-NUM_STATES[self.cell_type]]",
        "states[0]",
        RECURRENT,
    ),
    Mutant(
        "random start states are drawn from a seed of their own",
        "zoo/models/seq2seq/recurrent_base.py",
        "random.Random(self.inference_seed)",
        "random.Random()",
        RECURRENT,
    ),
    Mutant(
        "copying and writing have each other's probability",
        "zoo/models/seq2seq/pointer_generator.py",
        "ops.log_sigmoid(gate) + generated, ops.log_sigmoid(-gate) + copied",
        "ops.log_sigmoid(-gate) + generated, ops.log_sigmoid(gate) + copied",
        POINTER,
    ),
    Mutant(
        "what is copied goes to the sentence before",
        "zoo/models/seq2seq/pointer_generator.py",
        'ops.arange(batch, dtype="int32")[:, None] * symbols',
        'ops.arange(batch, dtype="int32")[::-1, None] * symbols',
        POINTER,
    ),
    Mutant(
        "keys and values of ConvS2S are exchanged",
        "zoo/models/seq2seq/convs2s.py",
        "block.project_memory(hidden, embedded) for block",
        "block.project_memory(embedded, hidden) for block",
        CONVS2S,
    ),
    Mutant(
        "the gradient of the encoder is divided by its own layers",
        "zoo/models/seq2seq/convs2s.py",
        "_scale_gradient(hidden, 1.0 / self.decoder_layers)",
        "_scale_gradient(hidden, 1.0)",
        CONVS2S,
    ),
    Mutant(
        "a named model has a layer more",
        "zoo/models/catalog/convolutional.py",
        '"decoder_layers": 3}',
        '"decoder_layers": 4}',
        (f"{_EVERY}[convs2s_small]",),
    ),
    Mutant(
        "padding of the target has alignments",
        "zoo/models/seq2seq/luong.py",
        "weights = ops.where(real(target)[:, :, None], weights, ops.zeros_like(weights))",
        "weights = weights * 1.0",
        RECURRENT,
    ),
    Mutant(
        "embeddings of another size than the output are tied",
        "zoo/models/catalog/recurrent.py",
        'if self.tied_embeddings != "none" and getattr(self, name) != self.embedding_dim:',
        'if self.tied_embeddings == "all" and getattr(self, name) != self.embedding_dim:',
        (f"{_MODELS}/test_refused_options.py",),
    ),
]
