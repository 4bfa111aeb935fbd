"""Planted faults: the files of tokenizers beside `tokenizer.json`."""

from tests.mutants.mutant import Mutant

_FILES = "zoo/checkpoints/tokenizers.py"
_TESTS = "tests/training/importing/test_tokenizer_config.py::"
_REFUSED = (f"{_TESTS}test_keys_of_tokenizers_that_we_do_not_have_are_refused",)
_OLDER = (
    "tests/training/importing/test_llama.py::test_ids_and_logits_are_those_of_the_reference_alone_with_padding_and_"
    "step_by_step",
)

MUTANTS: list[Mutant] = [
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
]
