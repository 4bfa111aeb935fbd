"""Plain text, in folders of text files."""

from pathlib import Path

from training.data.dataset import SPLITS, TextData, Texts
from training.data.files import check_folder, folder_of, read_lines, stored
from training.data.registry import register_data
from zoo.errors import InputError
from zoo.text.blank import is_blank

FORM = "lines:DIR"


@register_data("lines", FORM)
def load_lines(spec: str, seed: int = 0) -> TextData:
    """Opens a folder of plain text, such as `lines:data/tinyshakespeare`; the default tokenizer is characters.

    `DIR/train.txt` and `DIR/val.txt` are required, `DIR/test.txt` is optional. Each file is one continuous text, blank
    lines included.

    Raises:
        InputError: The folder or a file is missing.
    """
    directory = folder_of(spec, FORM)
    check_folder(directory, ["train.txt", "val.txt"], spec, FORM, "train.txt and val.txt")
    splits = SPLITS if stored(directory / "test.txt").exists() else SPLITS[:2]

    def load_split(name: str) -> Texts:
        return read_text(stored(directory / f"{name}.txt"))

    def files(name: str) -> dict[str, Path]:
        return {"text": stored(directory / f"{name}.txt")}

    return TextData(spec=spec, tokenizer="chars", load_split=load_split, splits=splits, joined=True, line_files=files)


def read_text(path: Path) -> Texts:
    """Reads a file of plain text; raises InputError if it is missing, not UTF-8, or has blank lines only."""
    lines = read_lines(path)
    if all(map(is_blank, lines)):
        raise InputError(f"{path}:1: blank lines only; a split needs text.")
    return Texts(lines)
