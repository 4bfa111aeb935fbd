"""Metrics against values that sacreBLEU's own tests state, and against values worked out by hand."""

import pytest
import sacrebleu

from training.data.languages import language_of, target_language
from training.evaluation.reranking import consensus
from training.tasks.metrics import bleu_tokenizer, translation_metrics


def test_a_case_by_hand():
    """Matches 3 of 4, 2 of 3, 1 of 2 and 0 of 1; exponential smoothing takes 1/2 for the last."""
    bleu = translation_metrics(["this is a fest"], ["this is a test"])["bleu"]
    assert bleu == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)


def test_short_translations_are_punished():
    """All n-grams match; 6 tokens against 8 cost exp(1 − 8/6)."""
    bleu = translation_metrics(["a b c d e f"], ["a b c d e f g h"])["bleu"]
    assert bleu == pytest.approx(100 * 2.718281828459045 ** (1 - 8 / 6))


CHRF = (
    (["aa"], ["ab"], 25.0),
    (["a", "b"], ["a", "c"], 50.0),
    (["a b c"], ["abc"], 100.0),
    ([""], ["reference"], 0.0),
    (["Niemand hat die Absicht"], ["Niemand hat die Absicht"], 100.0),
)


def test_chrf_of_sacrebleus_own_tests():
    for hypotheses, references, expected in CHRF:
        assert translation_metrics(hypotheses, references)["chrf"] == pytest.approx(expected)


def test_languages_without_spaces_are_cut_by_their_own_rules(capsys):
    perfect = {
        "zh": ["我喜欢这只猫。", "他们在海边走。"],
        "ja": ["私はこの猫が好きです。", "彼らは海辺を歩いている。"],
        "ko": ["나는 이 고양이를 좋아한다.", "그들은 해변을 걷고 있다."],
        "th": ["ฉันชอบแมวตัวนี้", "พวกเขาเดินอยู่ริมทะเล"],
    }
    for language, texts in perfect.items():
        assert language_of(texts) == language == target_language(f"text:data:en-{language}")
        found = translation_metrics(texts, texts, language)
        assert found["bleu"] == pytest.approx(100) == found["chrf"], language
        near = translation_metrics([text[:-2] + text[-1] for text in texts], texts, language)
        assert 20 < near["bleu"] < 100
        assert f"tok:{bleu_tokenizer(language)}" in found["bleu_signature"]
    assert (bleu_tokenizer("zh"), bleu_tokenizer("th"), bleu_tokenizer("de"), bleu_tokenizer("")) == (
        "zh",
        "char",
        "13a",
        "13a",
    )
    assert consensus(["我喜欢狗", "我喜欢这只猫", "我喜欢这只小猫"], [-1.0, -1.1, -1.1], "mbr_bleu", "zh") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len({*lines}), "what is not installed is said once"


def test_languages_of_data():
    for spec, language in (
        ("text:data/x:en-de", "de"),
        ("text:data/x:en-zh_CN", "zh"),
        ("text:data/x:en-zho_Hans", "zho"),
        ("tfds:wmt14_translate/de-en", "en"),
        ("tfds:ted/x:en-ja", "ja"),
        ("text:data/x:source-target", ""),
        ("dates", ""),
    ):
        assert target_language(spec) == language, spec
    assert language_of([]) == language_of(["a cat 猫"]) == language_of(["123 !"]) == ""
    assert language_of(["中文 with some", "更多的中文字符在这里面出现了"]) == "zh"


def test_perfect_and_empty():
    texts = ["Ein Mann reitet auf einem Pferd .", "Zwei Frauen gehen am Strand entlang ."]
    perfect = translation_metrics(texts, texts)
    assert [perfect[name] for name in ("bleu", "bleu_lower_tokenized", "chrf", "exact_match")] == pytest.approx(
        [100, 100, 100, 1]
    )
    empty = translation_metrics(["", ""], texts)
    assert [empty[name] for name in ("bleu", "bleu_lower_tokenized", "chrf", "exact_match")] == [0, 0, 0, 0]


def test_case_counts_in_one_of_the_two():
    metrics = translation_metrics(["ein mann reitet auf einem pferd."], ["Ein Mann reitet auf einem Pferd."])
    assert metrics["bleu_lower_tokenized"] == pytest.approx(100)
    assert metrics["bleu"] < 40
    assert metrics["exact_match"] == 0


def test_punctuation_is_a_token_of_its_own():
    assert translation_metrics(["one, two three four."], ["one , two three four ."])["bleu"] == pytest.approx(100)


def test_the_corpus_counts_and_not_the_mean_of_its_sentences():
    hypotheses, references = ["a b c d e f g h", "x"], ["a b c d e f g h", "y z"]
    together = translation_metrics(hypotheses, references)["bleu"]
    alone = [translation_metrics([h], [r])["bleu"] for h, r in zip(hypotheses, references, strict=True)]
    assert alone == pytest.approx([100, 0])
    assert 75 < together < 90


def test_signatures_say_how():
    metrics = translation_metrics(["a"], ["a"])
    end = f"version:{sacrebleu.__version__}"
    assert metrics["bleu_signature"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{end}"
    assert metrics["bleu_lower_tokenized_signature"] == f"nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|{end}"
    assert metrics["chrf_signature"] == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{end}"


def test_exact_match_is_a_share_and_lengths_must_agree():
    assert translation_metrics(["1", "2", "3", "x"], ["1", "2", "3", "4"])["exact_match"] == 0.75
    with pytest.raises(ValueError):
        translation_metrics(["1", "2"], ["1"])
