"""Texts without anything to see."""

from zoo.text.blank import is_blank


def test_what_has_no_visible_token_is_blank():
    blank = (
        "",
        " ",
        "\t\r\n",
        "\u200b",
        "\ufeff",
        " \u200b\u00a0\u2060 ",
        "\u3164",
        "\u200d\ufe0f",
        "\x00",
        "\u00ad",
        "\u2028",
    )
    assert [text for text in blank if not is_blank(text)] == []
    seen = ("a", ".", "\u200ba", "ا", "\u0301a", "👩\u200d🔬", "▁", "\ufffd", "<")
    assert [text for text in seen if is_blank(text)] == []
