"""Planted faults: models of sequence to sequence, and what all models share."""

from tests.mutants.mutant import Mutant

_MODELS = "tests/zoo/models"
_EVERY = f"{_MODELS}/test_every_model.py::test_named_model"
FORMULAS = f"{_MODELS}/shared/test_transformers_by_formula.py"
RECURRENT_FORMULAS = f"{_MODELS}/seq2seq/test_recurrent_by_formula.py"
RECURRENT = f"{_MODELS}/seq2seq/test_recurrent_models.py"
TRANSFORMER = f"{_MODELS}/seq2seq/test_transformer.py"
POINTER = f"{_MODELS}/seq2seq/test_pointer_generator.py"
CONVS2S = f"{_MODELS}/seq2seq/test_convs2s.py"
VISIBILITY = f"{_MODELS}/shared/test_visibility_options.py"
KINDS = f"{_MODELS}/shared/test_self_attention_options.py"
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
        (f"{TRANSFORMER}::test_tying_saves_embeddings",),
    ),
    Mutant(
        "the encoder shares its keys and values as the decoder does",
        _TRANSFORMER,
        "dataclasses.replace(self.options, num_key_value_heads=0)",
        "self.options",
        (f"{TRANSFORMER}::test_keys_and_values_are_shared_in_the_decoder_alone",),
    ),
    Mutant(
        "the padding of the source is not hidden from the decoder",
        _TRANSFORMER,
        '"memory_mask": memory["mask"]}',
        '"memory_mask": None}',
        (f"{_EVERY}[transformer_small]",),
    ),
    Mutant(
        "the padding of the source is not hidden from a step of decoding",
        _TRANSFORMER,
        'memory_mask=memory["mask"], cache=cache',
        "memory_mask=None, cache=cache",
        (f"{_EVERY}[transformer_small]",),
    ),
    Mutant(
        "every step of decoding has the first position",
        _TRANSFORMER,
        'self._embed_target(tokens, start_index=state["index"])',
        "self._embed_target(tokens)",
        (f"{FORMULAS}::test_transformer[post-norm]",),
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
        (f"{FORMULAS}::test_transformer[pre-norm]",),
    ),
    Mutant(
        "a post-norm block normalises before it adds",
        "zoo/layers/blocks/transformer_base.py",
        "return summed if self.normalize_first else self.norms[index](summed)",
        "return summed if self.normalize_first else inputs + self.norms[index](outputs)",
        (f"{FORMULAS}::test_transformer[post-norm]",),
    ),
    Mutant(
        "a pre-norm block adds what it has normalised",
        "zoo/layers/blocks/transformer_base.py",
        "return self.norms[index](inputs) if self.normalize_first else inputs",
        "return self.norms[0](inputs) if self.normalize_first else inputs",
        (f"{FORMULAS}::test_transformer[pre-norm]",),
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
        (f"{VISIBILITY}::test_rules",),
    ),
    Mutant(
        "each convolution has the width of the next block",
        _LAYERS,
        'options.kernel_width(block), "causal"',
        'options.kernel_width(block + 1), "causal"',
        (f"{KINDS}::test_widths_of_convolutions",),
    ),
    Mutant(
        "the first lambda of differential attention does not depend on the block",
        _LAYERS,
        "math.exp(-0.3 * block)",
        "math.exp(-0.3)",
        (f"{KINDS}::test_sizes_of_heads",),
    ),
    Mutant(
        "a cache keeps everything, however little is seen",
        _LAYERS,
        "attention.kept_first + reach < max_length",
        "False",
        (f"{VISIBILITY}::test_language_models_decode_in_constant_memory",),
    ),
    Mutant(
        "each layer has relative positions of T5 of its own",
        _LAYERS,
        "return [self._positions(causal)] * self.stack.num_layers",
        "return [self._positions(causal) for _ in range(self.stack.num_layers)]",
        (f"{TRANSFORMER}::test_positions_stand_where_they_belong_and_tell_the_order[t5]",),
    ),
    Mutant(
        "ALiBi doubles the other side",
        "zoo/models/shared/positions.py",
        "distances(query_positions, key_positions) > 0",
        "distances(query_positions, key_positions) < 0",
        (f"{TRANSFORMER}::test_alibi_tells_the_sides_of_an_encoder_apart",),
    ),
    Mutant(
        "concatenated positions keep the size of the embeddings",
        "zoo/models/shared/positions.py",
        '"size": self.size or None',
        '"size": None',
        (f"{FORMULAS}::test_transformer[pre-norm]",),
    ),
    Mutant(
        "logits have no bias, though they should",
        "zoo/models/shared/embeddings.py",
        "return logits if output is None else output(logits)",
        "return logits",
        (f"{FORMULAS}::test_transformer[pre-norm]",),
    ),
    Mutant(
        "a transposed table outlives its context",
        "zoo/layers/core/constants.py",
        "        _constants.reset(token)",
        "        pass",
        (f"{_MODELS}/shared/test_embeddings.py",),
    ),
    Mutant(
        "RNNsearch starts from the state that has read the first word alone",
        "zoo/models/seq2seq/rnnsearch.py",
        "annotations[:, 0, self._encoder_units :]",
        "annotations[:, 0, : self._encoder_units]",
        (f"{RECURRENT_FORMULAS}::test_rnnsearch",),
    ),
    Mutant(
        "alignments are those of the step after",
        "zoo/models/seq2seq/rnnsearch.py",
        'queries = ops.concatenate([memory["start"][0][:, None], queries[:, :-1]], axis=1)',
        "pass",
        (f"{RECURRENT_FORMULAS}::test_rnnsearch",),
    ),
    Mutant(
        "the readout of RNNsearch has the wrong order",
        "zoo/models/seq2seq/rnnsearch.py",
        "ops.concatenate([recurrent, embedded], axis=-1)",
        "ops.concatenate([embedded, recurrent], axis=-1)",
        (f"{RECURRENT_FORMULAS}::test_rnnsearch",),
    ),
    Mutant(
        "Luong's encoder reads padding",
        "zoo/models/seq2seq/luong.py",
        "annotations, start = self.encoder(embedded, mask=mask,",
        "annotations, start = self.encoder(embedded, mask=None,",
        (f"{RECURRENT_FORMULAS}::test_luong",),
    ),
    Mutant(
        "the decoder is fed with the context, not with what it made of it",
        "zoo/layers/recurrent/luong_cell.py",
        "[*states, attentional] if self.input_feeding else states",
        "[*states, ops.zeros_like(attentional)] if self.input_feeding else states",
        (f"{RECURRENT_FORMULAS}::test_luong",),
    ),
    Mutant(
        "the decoder attends with its state before the step",
        "zoo/layers/recurrent/luong_cell.py",
        "        states = update(inputs, states)\n        query = states[self.query_index]",
        "        query = states[self.query_index]\n        states = update(inputs, states)",
        (f"{RECURRENT_FORMULAS}::test_luong",),
    ),
    Mutant(
        "a reversed encoder returns its outputs in the order of its reading",
        "zoo/models/seq2seq/recurrent_layers.py",
        "ops.flip(hidden, axis=1) if self.reverse else hidden",
        "hidden",
        (f"{RECURRENT}::test_a_reversed_encoder_reads_each_row_from_its_end",),
    ),
    Mutant(
        "an encoder drops what enters its first layer, too",
        "zoo/models/seq2seq/recurrent_layers.py",
        "            if number:\n",
        "            if True:\n",
        (f"{RECURRENT}::test_dropout_acts_where_it_should",),
    ),
    Mutant(
        "the summary is that of the lowest layer",
        "zoo/models/seq2seq/rnn_encdec.py",
        "states[-NUM_STATES[self.cell_type]]",
        "states[0]",
        (f"{RECURRENT}::test_the_summary_is_made_of_the_last_output",),
    ),
    Mutant(
        "random start states are drawn from a seed of their own",
        "zoo/models/seq2seq/recurrent_layers.py",
        "random.Random(self.inference_seed)",
        "random.Random()",
        (f"{RECURRENT}::test_random_starts_are_drawn_for_each_sentence_in_training_only",),
    ),
    Mutant(
        "copying and writing have each other's probability",
        "zoo/models/seq2seq/pointer_generator.py",
        "ops.log_sigmoid(gate) + generated, ops.log_sigmoid(-gate) + copied",
        "ops.log_sigmoid(-gate) + generated, ops.log_sigmoid(gate) + copied",
        (f"{POINTER}::test_the_mixture_of_two_distributions",),
    ),
    Mutant(
        "what is copied goes to the sentence before",
        "zoo/models/seq2seq/pointer_generator.py",
        'ops.arange(batch, dtype="int32")[:, None] * tokens',
        'ops.arange(batch, dtype="int32")[::-1, None] * tokens',
        (f"{POINTER}::test_copied_tokens",),
    ),
    Mutant(
        "keys and values of ConvS2S are exchanged",
        "zoo/models/seq2seq/convs2s.py",
        "block.project_memory(hidden, embedded) for block",
        "block.project_memory(embedded, hidden) for block",
        (f"{CONVS2S}::test_agrees_with_the_paper",),
    ),
    Mutant(
        "the gradient of the encoder is divided by its own layers",
        "zoo/models/seq2seq/convs2s.py",
        "_scale_gradient(hidden, 1.0 / self.decoder_layers)",
        "_scale_gradient(hidden, 1.0)",
        (f"{CONVS2S}::test_the_gradient_of_the_encoder_is_divided_by_the_layers_that_attend",),
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
        "weights = ops.where(padding_mask(target)[:, :, None], weights, ops.zeros_like(weights))",
        "weights = weights * 1.0",
        (f"{RECURRENT}::test_predicted_windows_are_narrow",),
    ),
    Mutant(
        "embeddings of another size than the output are tied",
        "zoo/models/catalog/recurrent.py",
        'if self.tied_embeddings != "none" and getattr(self, name) != self.embedding_dim:',
        'if self.tied_embeddings == "all" and getattr(self, name) != self.embedding_dim:',
        (f"{_MODELS}/test_refused_options.py",),
    ),
]
