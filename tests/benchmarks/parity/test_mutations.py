"""Changes of a checkpoint's configuration: every key is changed, and ours is never silently wrong."""

import importlib.util

import pytest
from support import checkpoints

from benchmarks.parity import __main__ as parity
from benchmarks.parity.outcomes import DECLARED, DIFFER, FILES, UNNAMED, WRONG, VersionsDiffer, settled, table

optional = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in parity.PACKAGES), reason="optional packages"
)


def test_only_declared_changes_are_differences_between_versions():
    declared = [VersionsDiffer("A", "a.json", "key", "1", "older ones do as ours")]
    rows = [("key", "1", f"{WRONG}: 2 is 3 here"), ("key", "2", f"{WRONG}: 4 is 5 here"), ("other", "1", "agree")]
    first, *others = settled("A", "a.json", rows, declared)
    assert first == ("key", "1", f"{DIFFER}: older ones do as ours") and others == rows[1:]
    assert settled("B", "a.json", rows, declared) == settled("A", "b.json", rows, declared) == rows
    for measured in ([("key", "1", "agree")], []):
        (row,) = settled("A", "a.json", measured, declared)
        assert row[:2] == ("key", "1") and row[2].startswith(WRONG) and DIFFER in row[2]


def test_the_table_counts_outcomes_and_shows_what_neither_agrees_nor_names_the_key():
    text = table("A, a.json", [("a", "1", "agree"), ("b", "2", "agree"), ("c", "3", f"{UNNAMED}: d.json")])
    assert f"3 changes: 2 agree, 1 {UNNAMED}." in text and "| `c` | `3` |" in text and "`a`" not in text
    assert "| `e` | `4` |" in table("A, a.json", [("e", "4", f"{DIFFER}: why")])
    assert all(entry.file in FILES and entry.reason for entry in DECLARED)


@pytest.mark.weekly
@optional
def test_every_key_is_left_out_and_set_to_other_values():
    from benchmarks.parity.mutations import LEFT_OUT, changes

    config = {"flag": True, "size": 4, "rate": 0.5, "kind": "gelu", "rope_parameters": None, "eos_token_id": 2}
    found = {}
    for key, value in changes(config, {**config, "sliding_window": None, "model_type": "a"}):
        found.setdefault(key, []).append(value)
    assert {key for key, values in found.items() if LEFT_OUT in values} == {*config}
    assert False in found["flag"] and {5, 2, 8} <= {*found["size"][1:]} and [2, 3] in found["eos_token_id"]
    assert len(found["rope_parameters"]) == 7 and found["sliding_window"] == [1, 2.0] and "model_type" not in found


@pytest.mark.weekly
@optional
def test_keys_of_tokenizers_are_left_out_and_set_to_other_values():
    from benchmarks.parity.mutations import LEFT_OUT
    from benchmarks.parity.tokenizer_config_mutations import CONFIG, SPECIAL, changes, texts_of_all_kinds

    content = {"legacy": True, "eos_token": "</s>", "added_tokens_decoder": {"2": {"content": "</s>", "special": True}}}
    found = {}
    for key, value in changes(content, CONFIG, {"man": 7}, 9):
        found.setdefault(key, []).append(value)
    assert {key for key, values in found.items() if LEFT_OUT in values} == {*content}
    assert found["legacy"] == [LEFT_OUT, False] and [True, False] == found["add_eos_token"]
    assert {"man", "<new>", None} <= {value for value in found["eos_token"] if not isinstance(value, dict)} - {LEFT_OUT}
    words = [value["7"] for value in found["added_tokens_decoder"] if value is not LEFT_OUT and "7" in value]
    assert len(words) == 6 and sum(word["lstrip"] for word in words) == 1
    others = {key for key, _ in changes({}, SPECIAL, {"man": 7}, 9)}
    assert "legacy" not in others and {"pad_token", "additional_special_tokens"} <= others
    texts = texts_of_all_kinds()
    assert len({*texts}) == 200 and any(text.startswith(" ") for text in texts)


@pytest.mark.weekly
@optional
def test_ours_agrees_or_refuses_by_name(tmp_path, capsys):
    output = tmp_path / "tables.md"
    words = ["--pretrained", str(checkpoints.FIXTURES), "--mutate", "--output", str(output)]
    assert parity.main([*words, "--family", "GPT-2"]) == 0
    text = output.read_text(encoding="utf-8")
    assert text.strip() == capsys.readouterr().out.strip() and "WRONG" not in text
    assert "refused by name" in text and "agree" in text
    from benchmarks.parity.families import FAMILIES

    assert {entry.family for entry in DECLARED} <= {family.name for family in FAMILIES}
    assert parity.main([*words, "--only", "tokenizer.json", "--family", "Qwen2"]) == 0
    assert "**Qwen2, tokenizer.json**" in output.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        parity.main([*words, "--family", "GPT-7"])
