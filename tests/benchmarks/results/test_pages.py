"""The pages and pictures are what is made of the files of results."""

import pytest

from benchmarks.results import __main__ as command
from benchmarks.results import pages, pictures
from benchmarks.results.quality import shortened
from benchmarks.results.speed import gap, value

PAGES = {pages.QUALITY_PAGE: pages.quality_page, pages.SPEED_PAGE: pages.speed_page}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.parent.name)
def test_pages_are_what_is_written_from_the_files(path):
    written = path.read_text(encoding="utf-8")
    assert written == PAGES[path](), "run python -m benchmarks.results"
    assert len(written.splitlines()) <= 150


def test_tables_have_rows_but_at_most_twelve():
    sizes = {section.title: len(shortened(section.groups())) for section in pages.QUALITY_SECTIONS}
    for section in pages.SPEED_SECTIONS:
        sizes[section.title] = len(section.rows())
        for choice in section.choice:
            assert type(section)("", "", (choice,)).rows(), f"{choice} chooses nothing"
    assert not {title: size for title, size in sizes.items() if not 1 <= size <= 12}


def test_pictures_show_what_the_pages_say():
    for path, points in (
        (pages.QUALITY_PICTURE, pictures.quality_points()),
        (pages.SPEED_PICTURE, pictures.speed_points()),
    ):
        drawn = path.read_text(encoding="utf-8")
        words = {word for label, _, _, text in points for word in (label, text)}
        assert words and not {word for word in words if f">{word}<" not in drawn}


def test_figures_and_gaps_are_written_with_their_units():
    row = {"value": "1169", "low": "1169", "high": "1270", "unit": "", "goal": ">=1500"}
    assert (value(row), gap(row)) == ("1,169 (1,169–1,270)", "331")
    assert gap({**row, "value": "0.9", "unit": "×", "goal": ">=1.15"}) == "0.25×"
    assert gap({**row, "value": "1.82", "goal": "2±0.15"}) == "0.03" and gap({**row, "goal": ""}) == ""


def test_the_command_appends_and_writes(monkeypatch, tmp_path, capsys):
    appended = []
    monkeypatch.setattr(command, "append", lambda name, **cells: appended.append((name, cells)))
    for name in ("QUALITY_PAGE", "SPEED_PAGE", "QUALITY_PICTURE", "SPEED_PICTURE"):
        monkeypatch.setattr(command, name, tmp_path / getattr(pages, name).name.replace("RESULTS", name))
    command.main(["add", "translation", "task=Dates", "command=a --set b=c"])
    assert appended == [("translation", {"task": "Dates", "command": "a --set b=c"})]
    assert (tmp_path / "QUALITY_PAGE.md").read_text(encoding="utf-8") == pages.quality_page()
    assert "<svg" in (tmp_path / "speed.svg").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        command.main(["add", "translation", "Dates"])
    assert "COLUMN=VALUE" in capsys.readouterr().err
