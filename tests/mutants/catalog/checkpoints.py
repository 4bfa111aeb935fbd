"""Planted faults: checkpoints."""

from tests.mutants.mutant import Mutant

_TESTS = "tests/training/importing/"
_SAME = "are_those_of_the_reference"
_BERT = (f"{_TESTS}test_bert.py::test_vectors_{_SAME}_alone_and_with_padding",)
_WORDPIECE = (f"{_TESTS}test_bert.py::test_ids_{_SAME}",)
_CHARACTERS = (f"{_TESTS}test_ctranslate2.py::test_characters_are_read_without_an_end_and_translated_as_there",)
_CONVERTED = (f"{_TESTS}test_ctranslate2.py::test_sources_of_a_converted_marian_end_and_its_tables_are_one",)
_FEWER_BITS = (f"{_TESTS}test_ctranslate2.py::test_weights_of_fewer_bits_are_what_they_stand_for",)
_BEHIND = (f"{_TESTS}test_ctranslate2.py::test_an_unknown_token_may_be_a_row_behind_the_vocabulary",)
_DECODER = f"{_TESTS}test_llama.py::test_ids_and_logits_{_SAME}_alone_with_padding_and_step_by_step"
_GPT2 = (f"{_TESTS}test_gpt2.py::test_ids_and_logits_{_SAME}_alone_with_padding_and_step_by_step",)
_MARIAN = (f"{_TESTS}test_marian.py::test_logits_{_SAME}_alone_and_with_padding",)
_NATIVE = f"{_TESTS}test_marian_native.py::test_logits_are_those_of_the_arithmetic"
_T5 = f"{_TESTS}test_t5.py::test_ids_and_logits_{_SAME}"
_BAD = (f"{_TESTS}test_bad_checkpoints.py",)
_HUB = (f"{_TESTS}test_hub.py",)

MUTANTS: list[Mutant] = [
    # Files.
    Mutant(
        "tensors in bfloat16 are shifted by too few bits",
        "zoo/checkpoints/safetensors_file.py",
        "(values.astype(np.uint32) << 16)",
        "(values.astype(np.uint32) << 15)",
        _BAD,
    ),
    Mutant(
        "tensors are read from the place of the one before",
        "zoo/checkpoints/safetensors_file.py",
        '"r", self._first + start, (count,)',
        '"r", self._first + max(0, start - (end - start)), (count,)',
        _BAD,
    ),
    Mutant(
        "only the first file that an index names is read",
        "zoo/checkpoints/checkpoint.py",
        "sorted({*named})",
        "sorted({*named})[:1]",
        _BAD,
    ),
    Mutant(
        "a tensor that is transposed is taken",
        "zoo/checkpoints/checkpoint.py",
        "if stored_shape != shape:",
        "if sorted(stored_shape) != sorted(shape):",
        _BAD,
    ),
    Mutant(
        "tensors that nobody reads are not named",
        "zoo/checkpoints/checkpoint.py",
        "for name in part._tensors if name not in part._used",
        "for name in part._tensors if name not in part._tensors",
        _BAD,
    ),
    Mutant(
        "a failed import leaves its temporary folder",
        "zoo/workdir.py",
        "shutil.rmtree(temporary, ignore_errors=True)",
        "shutil.rmtree(temporary.parent / 'none', ignore_errors=True)",
        _BAD,
    ),
    Mutant(
        "weights of bfloat16 are kept in float32",
        "training/importing/workdir.py",
        "model = create_model(imported.model, dtype=dtype, **config.model)",
        "model = create_model(imported.model, **config.model)",
        (f"{_TESTS}test_dtype.py::test_weights_are_rounded_and_loaded_as_float32[gpt2]",),
    ),
    Mutant(
        "pickled weights are of the newest revision, and not of the one that was brought",
        "training/importing/hub.py",
        "folder = _snapshot(repository, folder.name, (*FILES, PICKLED))",
        "folder = _snapshot(repository, revision, (*FILES, PICKLED))",
        _HUB,
    ),
    Mutant(
        "a folder here is taken for a name on the hub",
        "training/importing/hub.py",
        "_NAME.fullmatch(name) is not None and not Path(name).exists()",
        "_NAME.fullmatch(name) is not None",
        _HUB,
    ),
    # CTranslate2.
    Mutant(
        "rows of 8 bits share one scale",
        "zoo/checkpoints/ctranslate2_file.py",
        "scale[:, None] if scale.size > 1 else scale.reshape(())",
        "scale.max()",
        _FEWER_BITS,
    ),
    Mutant(
        "weights in whole numbers are multiplied by their scale",
        "zoo/checkpoints/ctranslate2_file.py",
        "values.astype(np.float32) / (",
        "values.astype(np.float32) * (",
        _FEWER_BITS,
    ),
    Mutant(
        "positions of OpenNMT-tf count from 0",
        "zoo/checkpoints/families/ctranslate2.py",
        "np.arange(1, _LENGTH + 1)",
        "np.arange(0, _LENGTH)",
        _CHARACTERS,
    ),
    Mutant(
        "sources of a converted Marian have no end",
        "zoo/checkpoints/families/ctranslate2.py",
        'checkpoint.option("add_source_eos", False) or _starts_from_zeros(checkpoint)',
        'checkpoint.option("add_source_eos", False)',
        _CONVERTED,
    ),
    Mutant(
        "tied embeddings of CTranslate2 become two tables",
        "zoo/checkpoints/families/ctranslate2.py",
        'return "all" if source == target and orders["source"] == orders["target"] else "target"',
        'return "target"',
        _CONVERTED,
    ),
    Mutant(
        "an unknown token behind the vocabulary is an ordinary one",
        "zoo/checkpoints/families/ctranslate2.py",
        "if unknown is None and rows == len(tokens) + 1:",
        "if unknown is None and rows == len(tokens):",
        _BEHIND,
    ),
    # What families share.
    Mutant(
        "square matrices are not transposed",
        "zoo/checkpoints/families/layouts.py",
        "return self._inner.split(tensor.T)",
        "return self._inner.split(tensor if tensor.shape[0] == tensor.shape[1] else tensor.T)",
        _BERT,
    ),
    Mutant(
        "vectors that are rows of matrices are read as zeros",
        "zoo/checkpoints/families/layouts.py",
        "return self._inner.split(tensor[0])",
        "return self._inner.split(0 * tensor[0])",
        _MARIAN,
    ),
    Mutant(
        "tokens that a checkpoint lacks share the row of its first token",
        "zoo/checkpoints/vocabulary.py",
        "rows[np.equal(self.original_ids, NEW)] = new",
        "rows[np.equal(self.original_ids, NEW)] += 0",
        (f"{_NATIVE}[pre_norm]",),
    ),
    Mutant(
        "start and end of a vocabulary are exchanged",
        "zoo/checkpoints/vocabulary.py",
        "special = [NEW if pad is None else pad, start, end,",
        "special = [NEW if pad is None else pad, end, start,",
        _WORDPIECE,
    ),
    Mutant(
        "rotary features stay half a head apart",
        "zoo/checkpoints/families/base.py",
        "rotated[...] = halves.swapaxes(-1, -2).reshape(rotated.shape)",
        "rotated[...] = halves.reshape(rotated.shape)",
        (f"{_DECODER}[llama]",),
    ),
    # BERT.
    Mutant(
        "the two normalisations of a block of BERT are exchanged",
        "zoo/checkpoints/families/encoders.py",
        '("attention.output.LayerNorm", "output.LayerNorm")',
        '("output.LayerNorm", "attention.output.LayerNorm")',
        _BERT,
    ),
    Mutant(
        "a sentence encoder reads more tokens than its limit",
        "zoo/checkpoints/families/sentence_transformers.py",
        'limit = config.get("max_seq_length") or ',
        "limit = ",
        _WORDPIECE,
    ),
    Mutant(
        "accents are kept where text is lower-cased",
        "zoo/checkpoints/wordpiece.py",
        "bool(lowercase if accents is None else accents)",
        "bool(accents)",
        _WORDPIECE,
    ),
    # Decoders.
    Mutant(
        "keys and values of GPT-2 are exchanged",
        "zoo/checkpoints/families/gpt2.py",
        '("attn.c_attn", attention.query_dense, attention.key_dense, attention.value_dense)',
        '("attn.c_attn", attention.query_dense, attention.value_dense, attention.key_dense)',
        _GPT2,
    ),
    Mutant(
        "values of GPT-NeoX are put in the order of rotated features",
        "zoo/checkpoints/families/gpt_neox.py",
        "columns[:, :2] = paired(columns[:, :2], head_dim, rotated_dim)",
        "columns[:] = paired(columns, head_dim, rotated_dim)",
        (f"{_DECODER}[gpt_neox]",),
    ),
    Mutant(
        "the last normalisation of Gemma is not shifted by 1",
        "zoo/checkpoints/families/gemma.py",
        'normalization("model.norm", model.final_norm, Shifted(1.0))',
        'normalization("model.norm", model.final_norm, Shifted(0.0))',
        (f"{_DECODER}[gemma2]",),
    ),
    Mutant(
        "queries of Gemma 2 are scaled the other way round",
        "zoo/checkpoints/families/gemma.py",
        "(head_dim / scalar) ** 0.5",
        "(scalar / head_dim) ** 0.5",
        (f"{_DECODER}[gemma2]",),
    ),
    Mutant(
        "heads of Phi-3 are put in order as a whole, where a part is rotated",
        "zoo/checkpoints/families/phi3.py",
        "paired(part, options.head_dim, options.rotated_dim)",
        "paired(part, options.head_dim)",
        (f"{_DECODER}[phi3]",),
    ),
    Mutant(
        "normalised queries of Gemma 3 are not scaled",
        "zoo/checkpoints/families/gemma.py",
        "Shifted(1.0, Scaled(query_factor, Columns()))",
        "Shifted(1.0)",
        (f"{_DECODER}[gemma3_text]",),
    ),
    Mutant(
        "layers of Gemma 3 whose windows are long have the wavelength of the others",
        "zoo/checkpoints/families/gemma.py",
        "for index in range(layers)], always=True)",
        "for index in range(layers)])",
        (f"{_TESTS}test_llama.py::test_layers_differ_as_the_configuration_says",),
    ),
    Mutant(
        "the layers without positions are counted from 0",
        "zoo/models/shared/transformer_layers.py",
        "(block + 1) % skipped == 0",
        "block % skipped == 0",
        (f"{_DECODER}[smollm3]",),
    ),
    Mutant(
        "rope_scaling is ignored beside rope_parameters",
        "zoo/checkpoints/families/rotary.py",
        "if current and former and current != former:",
        "if False:",
        (f"{_TESTS}test_llama.py::test_what_we_do_not_have_is_refused",),
    ),
    Mutant(
        "a window of Mistral is one position too long",
        "zoo/checkpoints/families/decoders.py",
        '"window": window - 1',
        '"window": window',
        (f"{_TESTS}test_llama.py::test_windows_are_those_of_the_configuration",),
    ),
    Mutant(
        "a written vocabulary has gaps",
        "zoo/checkpoints/byte_level_tokenizers.py",
        "for i in range(max(numbered)) if i not in numbered",
        "for i in range(0) if i not in numbered",
        ("tests/export/test_convert_to_hub.py",),
    ),
    Mutant(
        "added tokens are special",
        "zoo/checkpoints/byte_level_tokenizers.py",
        'for token in tokens if not token["special"])',
        "for token in () if token)",
        (f"{_DECODER}[gpt_neox]",),
    ),
    Mutant(
        "texts never begin with the start token",
        "zoo/checkpoints/decoder_tokenizers.py",
        "    return bool(added)",
        "    return False",
        (f"{_DECODER}[smollm3]",),
    ),
    Mutant(
        "a tokenizer that adds other tokens is read",
        "zoo/checkpoints/decoder_tokenizers.py",
        'if parts[-1:] != [("Sequence", "A")] or added not in ([], [start]):',
        "if False:",
        ("tests/training/importing/test_llama.py::test_tokenizers_that_we_do_not_have_are_refused",),
    ),
    Mutant(
        "halves of heads of CTranslate2 are read as pairs",
        "zoo/checkpoints/families/ctranslate2_decoder.py",
        'and not _of_all(checkpoint, "rotary_interleave", 1)',
        "and False",
        ("tests/export/test_convert_to_ctranslate2.py::test_a_language_model_leaves_and_comes_in_again[qwen3]",),
    ),
    Mutant(
        "pieces are joined as by SentencePiece whatever the decoder is",
        "zoo/checkpoints/sentencepiece_writer.py",
        'if (decoder.get("type"), decoder.get("replacement"), drops_space) != ("Metaspace", SPACE, True):',
        "if False:",
        ("tests/training/importing/test_translators.py::test_nllb_is_read_by_its_model_of_sentencepiece",),
    ),
    # Encoder-decoders.
    Mutant(
        "logits of T5 1.1 are divided and those of T5 are not",
        "zoo/checkpoints/families/t5.py",
        "model.model_dim**-0.5 if divides else 1.0",
        "1.0 if divides else model.model_dim**-0.5",
        (f"{_T5}[t5]",),
    ),
    Mutant(
        "the farthest distance of T5 is the usual one",
        "zoo/checkpoints/families/t5.py",
        'checkpoint.option("relative_attention_max_distance", 128)',
        "128",
        (f"{_T5}[t5_gated]",),
    ),
    Mutant(
        "sines and cosines of Marian are taken for pairs",
        "zoo/checkpoints/families/marian.py",
        "np.arange(model.model_dim).reshape(2, -1).T.ravel()",
        "np.arange(model.model_dim).reshape(-1, 2).T.ravel()",
        _MARIAN,
    ),
    Mutant(
        "embeddings of Marian are not scaled",
        "zoo/checkpoints/families/fairseq.py",
        'checkpoint.option("scale_embedding", defaults.scale_embedding)',
        "False",
        _MARIAN,
    ),
    Mutant(
        "epsilon of Marian is the usual one",
        "zoo/checkpoints/families/marian_native.py",
        "EPSILON = 1e-6",
        "EPSILON = 1e-5",
        (f"{_NATIVE}[student]",),
    ),
    Mutant(
        "rates of Marian's sinusoids are those of the paper",
        "zoo/checkpoints/families/marian_native.py",
        "max(dim // 2 - 1, 1)",
        "(dim // 2)",
        (f"{_NATIVE}[pre_norm]",),
    ),
    Mutant(
        "tokens that Marian never writes may be written",
        "zoo/checkpoints/families/layouts.py",
        "UNWRITTEN = -1e4",
        "UNWRITTEN = 0.0",
        (f"{_NATIVE}[pre_norm]",),
    ),
    Mutant(
        "T5 scales its logits by the old name alone",
        "zoo/checkpoints/families/t5.py",
        'checkpoint.option("scale_decoder_outputs", tied)',
        "tied",
        (
            "tests/training/importing/test_t5.py::test_logits_are_scaled_as_the_file_says_by_its_old_name_or_its_new_one",
        ),
    ),
    Mutant(
        "of several ends only the first one ends a text",
        "zoo/checkpoints/checkpoint.py",
        "return list(dict.fromkeys(ends))",
        "return list(dict.fromkeys(ends))[:1]",
        ("tests/training/importing/test_llama.py::test_each_of_several_ends_ends_a_text",),
    ),
    Mutant(
        "generation_config.json is not read",
        "zoo/checkpoints/checkpoint.py",
        "file, value = self.path / _GENERATION, written",
        "pass",
        ("tests/training/importing/test_llama.py::test_each_of_several_ends_ends_a_text",),
    ),
    Mutant(
        "a key that nobody reads is accepted",
        "zoo/checkpoints/accounting.py",
        "if key in read or",
        "if True or key in read or",
        (
            "tests/training/importing/test_bad_checkpoints.py::test_keys_that_nobody_knows_are_refused_unless_the_user_ignores_them",
        ),
    ),
    Mutant(
        "scalings of rotary positions that are not known are ignored",
        "zoo/checkpoints/families/rotary.py",
        "    if unknown:\n",
        "    if False:\n",
        ("tests/training/importing/test_llama.py::test_rotary_positions_are_scaled_as_the_file_says_or_refused",),
    ),
    Mutant(
        "words that were added to BERT are dropped",
        "zoo/checkpoints/wordpiece.py",
        'if not token["special"] or vocabulary.get(token["content"]) != token["id"]:',
        "if False:",
        ("tests/training/importing/test_bert.py::test_words_that_were_added_to_the_vocabulary_are_refused",),
    ),
    Mutant(
        "a byte-level tokenizer with a space before texts is read without",
        "zoo/checkpoints/byte_level_tokenizers.py",
        'or level.get("add_prefix_space") ',
        "",
        ("tests/training/importing/test_bad_checkpoints.py::test_tokenizers_that_read_otherwise_are_refused",),
    ),
    Mutant(
        "a pointer of Git LFS is read as the file",
        "zoo/checkpoints/checkpoint.py",
        "if file.read(len(_POINTER)) == _POINTER:",
        "if False:",
        ("tests/training/importing/test_bad_checkpoints.py::test_pointers_of_git_lfs_are_named",),
    ),
    Mutant(
        "a table that is tied and there twice is whichever",
        "zoo/checkpoints/checkpoint.py",
        "if tied and self.has(logits)",
        "if False and self.has(logits)",
        ("tests/training/importing/test_llama.py::test_a_table_that_is_tied_and_there_twice_must_be_one",),
    ),
    Mutant(
        "of a tensor in two files the last one is read",
        "zoo/checkpoints/checkpoint.py",
        "if name in self._tensors:\n                    raise",
        "if False:\n                    raise",
        ("tests/zoo/checkpoints/test_json_types.py::test_a_tensor_in_two_files_is_refused",),
    ),
]
