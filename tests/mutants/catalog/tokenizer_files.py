"""Planted faults: the files of tokenizers beside `tokenizer.json`."""

from tests.mutants.mutant import Mutant

_FILES = "zoo/checkpoints/tokenizers.py"
_TESTS = "tests/training/importing/test_tokenizer_config.py::"
_REFUSED = (f"{_TESTS}test_keys_of_tokenizers_that_we_do_not_have_are_refused",)
_TYPES = "tests/zoo/checkpoints/test_json_types.py::test_values_of_the_wrong_type_are_refused_with_file_and_key"
_OLDER = (
    "tests/training/importing/test_llama.py::test_ids_and_logits_are_those_of_the_reference_alone_with_padding_and_"
    "step_by_step",
)

_WRITER, _DECODERS = "zoo/checkpoints/sentencepiece_writer.py", "tests/training/importing/test_llama.py::"
_SPACES = (f"{_DECODERS}test_texts_begin_with_a_space_as_tokenizer_json_describes_it",)

MUTANTS: list[Mutant] = [
    Mutant(
        "a space is put before texts that begin with one",
        "zoo/text/reordered_subwords.py",
        'if text and text[0] not in (" ", SPACE) else text',
        "if text else text",
        _OLDER,
    ),
    Mutant(
        "the graph puts no space before texts",
        "export/graph/tokenizers/subwords.py",
        "if self._spaced:",
        "if False:",
        _SPACES,
    ),
    Mutant(
        "Prepend puts no space before texts",
        _WRITER,
        'space_before(path, described) == "Prepend"',
        "False",
        _SPACES,
    ),
    Mutant(
        "an added token that is not special is an ordinary piece",
        _WRITER,
        "kinds[piece] = _USER_DEFINED",
        "pass",
        _SPACES,
    ),
    Mutant(
        "runs of spaces are ordinary pieces whatever the order of their merges is",
        _WRITER,
        "and max(growing) == growing[-1] < count",
        "and False",
        ("tests/zoo/checkpoints/test_sentencepiece_writer.py::test_runs_of_spaces_are_divided_in_the_order_of_merges",),
    ),
    Mutant(
        "merges need not be those that the pieces imply",
        _WRITER,
        "if len(ranks) != len(groups) or missing or piece not in vocabulary or piece in kinds:",
        "if False:",
        (f"{_DECODERS}test_tokenizers_that_we_do_not_have_are_refused",),
    ),
    Mutant(
        "the decoder of SentencePiece with bytes is not read",
        _WRITER,
        "if decoder != (joined :=",
        "if None is (joined :=",
        _REFUSED,
    ),
    Mutant(
        "add_prefix_space may contradict tokenizer.json",
        "zoo/checkpoints/decoder_tokenizers.py",
        "if configured not in (None, bool(before)):",
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "tokens beyond the pieces of SentencePiece lose their names, but for the end",
        _FILES,
        "if i >= size and i in named}",
        "if i >= size and i in named and ours == END}",
        ("tests/training/importing/test_llama.py::test_tokens_beyond_the_pieces_keep_their_names_and_ids",),
    ),
    Mutant(
        "added tokens may leave out ids",
        _FILES,
        "if index != expected:",
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "written ids between added tokens have no names",
        _FILES,
        "for i in range(size, max(names, default=0) + 1)}",
        "for i in names}",
        ("tests/zoo/checkpoints/test_decoder_tokenizers.py",),
    ),
    Mutant(
        "merges beside a SentencePiece model may have another order",
        _FILES,
        "if not are_equal:",
        "if False:",
        (f"{_TESTS}test_tokenizer_json_must_have_the_pieces_of_the_model_beside_it",),
    ),
    Mutant(
        "the start token may be another than the tokenizer adds",
        "zoo/checkpoints/decoder_tokenizers.py",
        "if written and not names.intersection(written):",
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "tokens beyond the pieces of SentencePiece get other ids",
        _FILES,
        "names, ids, tidy)",
        "names, None, tidy)",
        ("tests/training/importing/test_llama.py::test_tokens_beyond_the_pieces_keep_their_names_and_ids",),
    ),
    Mutant(
        "a decoder whose file omits the space before texts puts one",
        _FILES,
        "return model if expected is adds else model + _NO_SPACE",
        "return model",
        _OLDER,
    ),
    Mutant(
        "a Qwen without tokenizer.json has GPT-2's words",
        "zoo/checkpoints/byte_level_tokenizers.py",
        '"pre_tokenizer": _steps(_WORDS_OF[kind])',
        '"pre_tokenizer": _steps(GPT2)',
        (f"{_TESTS}test_words_of_a_qwen_are_those_of_its_class_if_no_file_describes_them",),
    ),
    Mutant(
        "the end after texts is dropped in silence",
        "zoo/checkpoints/decoder_tokenizers.py",
        'if config.get("add_eos_token"):',
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "another token before texts of BART is accepted",
        "zoo/checkpoints/accounting.py",
        'if task == "seq2seq" and isinstance(tokenizer, ByteLevelBPETokenizer) and',
        "if False and",
        _REFUSED,
    ),
    Mutant(
        "words among the special tokens are read as text",
        "zoo/checkpoints/accounting.py",
        "if _is_text(tokenizer, name):",
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "WordPiece reads as tokenizer.json says, whatever its class is",
        "zoo/checkpoints/wordpiece.py",
        "if written and kind not in FOLLOWING",
        "if False and kind not in FOLLOWING",
        (f"{_TESTS}test_keys_of_wordpiece_override_the_normalizer",),
    ),
    Mutant(
        "the search of a language model is not listed",
        "zoo/checkpoints/accounting.py",
        "search_of(written) if is_translator else sampling_of(written)",
        "search_of(written)",
        ("tests/training/importing/test_translators.py::test_how_the_software_of_a_checkpoint_searches_is_said",),
    ),
    Mutant(
        "an added token in another file than the vocabulary is reported without that file",
        "zoo/checkpoints/byte_level_tokenizers.py",
        '(files or {}).get(token["content"], path)',
        "path",
        _REFUSED,
    ),
    Mutant(
        "a piece that merges result in may be a special token",
        "zoo/checkpoints/byte_level_tokenizers.py",
        'if token["special"] and text in merged:',
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "every added token without flags that looks special is special",
        _FILES,
        "marked.get(piece, piece in names)",
        "marked.get(piece, True)",
        (f"{_TESTS}test_added_tokens_without_flags_are_special_only_if_another_file_names_them",),
    ),
    Mutant(
        "a word among the added tokens of SentencePiece is an ordinary piece",
        _FILES,
        "if is_piece and (special or piece in single or not piece.strip(SPACE)):",
        "if is_piece:",
        _REFUSED,
    ),
    Mutant(
        "words that are added to a Marian are dropped",
        "zoo/checkpoints/families/marian.py",
        "    check_added(checkpoint, vocabulary)\n",
        "",
        _REFUSED,
    ),
    Mutant(
        "words that are added to WordPiece are found as others",
        _FILES,
        'not (special or piece.startswith(("[", "<", ">>")))',
        "False",
        _REFUSED,
    ),
    Mutant(
        "numbers of a configuration may be NaN",
        "zoo/checkpoints/checkpoint.py",
        "if is_number(value) and not abs(value) < _LARGEST:",
        "if is_number(value) and abs(value) >= _LARGEST:",
        (_TYPES,),
    ),
    Mutant(
        "values of tokenizer files may have any type",
        "zoo/checkpoints/checkpoint.py",
        "if isinstance(content, dict):",
        "if False:",
        (_TYPES,),
    ),
    Mutant(
        "a damaged SentencePiece model is not named",
        "zoo/checkpoints/decoder_tokenizers.py",
        "unknown_of(model_of(checkpoint, _MODEL))",
        "unknown_of((checkpoint.path / _MODEL).read_bytes())",
        ("tests/zoo/checkpoints/test_json_types.py::test_files_that_contain_something_else_are_named",),
    ),
]
