"""Changes of a checkpoint's configuration: every key is changed, and ours is never silently wrong."""

import importlib.util

import pytest
from support import checkpoints

from benchmarks.parity import __main__ as parity

optional = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in parity.PACKAGES), reason="optional packages"
)


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
def test_ours_agrees_or_refuses_by_name(tmp_path, capsys):
    output = tmp_path / "tables.md"
    words = ["--pretrained", str(checkpoints.FIXTURES), "--mutate", "--output", str(output)]
    assert parity.main([*words, "--family", "GPT-2"]) == 0
    text = output.read_text(encoding="utf-8")
    assert text.strip() == capsys.readouterr().out.strip() and "WRONG" not in text
    assert "refused by name" in text and "agree" in text
    assert parity.main([*words, "--only", "ids", "--family", "Qwen2"]) == 0
    assert "**Qwen2, tokenizer.json**" in output.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        parity.main([*words, "--family", "GPT-7"])
