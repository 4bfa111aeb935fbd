"""The documents: their commands parse as written, what they name exists, and the README is a front door."""

import ast
import functools
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from support.commands import parse

import zoo
from training.loop.resolve import resolve

ROOT = Path(__file__).resolve().parent.parent
OURS = ("zoo", "training", "export", "examples", "benchmarks", "experiments")
WRITTEN_BY_A_COMMAND = ("docs/evidence/", "docs/faults.md", "docs/parity.md")
TESTED_ELSEWHERE = ("docs/introductions.md",)  # in tests/introductions
PAGES = [
    page
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not (page := str(path.relative_to(ROOT))).startswith(WRITTEN_BY_A_COMMAND + TESTED_ELSEWHERE)
]


@functools.cache
def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page) -> list[tuple[str, str]]:
    """Returns language and content of the fenced blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```", read(page), flags=re.DOTALL | re.MULTILINE)


def shell_lines(page) -> list[str]:
    text = "".join(content for language, content in blocks(page) if language in ("", "sh", "bash", "shell", "console"))
    return text.replace("\\\n", " ").splitlines()


def python_commands(page) -> list[list[str]]:
    """Returns module and arguments of every `python -m ...` in the blocks."""
    commands = []
    for line in shell_lines(page):
        if re.search(r"\bpython\S* -m ", line):
            words = shlex.split(line, comments=True)
            start = next(index for index, word in enumerate(words) if re.fullmatch(r"(.*/)?python[\d.]*", word))
            ends = ("&", "|", ">", "<", ";", "&&")
            end = next((index for index, word in enumerate(words) if word in ends), len(words))
            commands.append(words[start + 2 : end])
    return commands


def make_targets(page) -> list[str]:
    in_blocks = [target for line in shell_lines(page) for target in re.findall(r"^\W*make((?: +[\w-]+)+)", line)]
    in_text = re.findall(r"`make((?: +[\w-]+)+)`", read(page))
    return [target for targets in in_blocks + in_text for target in targets.split()]


def found(search):
    """Returns (page, what `search` finds there) for all pages, each once."""
    everything = [(page, item) for page in PAGES for item in search(page)]
    return [pair for number, pair in enumerate(everything) if pair not in everything[:number]]


def test_there_is_something_to_check():
    modules = {command[0] for command in python_commands("README.md")}
    assert modules >= {
        "training.train",
        "training.evaluate",
        "export.saved_model",
        "export.serve",
        "export.client",
    }, "the five commands"
    assert {"demo", "test"} <= set(make_targets("README.md"))
    assert {"docs/models.md", "docs/data.md", "docs/do/your-text.md"} <= {*PAGES}


def test_the_readme_is_a_front_door():
    assert len(read("README.md").splitlines()) <= 120


@pytest.mark.parametrize(("page", "command"), found(python_commands))
def test_commands_parse(page, command):
    module, *arguments = command
    assert importlib.util.find_spec(module) is not None
    if module.partition(".")[0] in OURS:
        parsed = parse(module, arguments)
        # What token shards fix is in their folder, which is not here.
        if module == "training.train" and parsed.model and not parsed.resume and "prepared:" not in parsed.data:
            resolve(parsed.model, parsed.data, parsed.set)


@pytest.mark.parametrize(("page", "module"), found(lambda page: re.findall(r"python -m (\w[\w.]*\w)", read(page))))
def test_modules_exist(page, module):
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize(("page", "settings"), found(lambda page: re.findall(r"`--set ([^`]+)`", read(page))))
def test_settings_exist(page, settings):
    resolve("transformer_tiny", "text:data:en-de", settings.split())


@pytest.mark.parametrize(("page", "target"), found(make_targets))
def test_make_targets_exist(page, target):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "code"), found(lambda page: [content for language, content in blocks(page) if language == "python"])
)
def test_python_names_exist(page, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in OURS:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zoo":
            assert hasattr(zoo, node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "zoo.create_model":
            assert node.args[0].value in zoo.list_models()


@pytest.mark.parametrize(
    ("page", "link"), found(lambda page: re.findall(r"\]\((?!https?://|#)([^)\s]+)\)", read(page)))
)
def test_links_lead_somewhere(page, link):
    path = (ROOT / page).parent.joinpath(link.partition("#")[0]).resolve()
    made = path.relative_to(ROOT).as_posix().startswith("docs/look-up/")  # `make docs` checks that it is there
    assert path.exists() or path.with_suffix(".py").exists() or made


def _named_in_rows(text):
    return {name for line in text.splitlines() if line.startswith("|") for name in re.findall(r"`([\w.]+)`", line)}


def test_every_model_has_a_row():
    assert zoo.list_models() and not {*zoo.list_models()} - _named_in_rows(read("docs/models.md"))


def test_every_layer_has_a_row():
    named = _named_in_rows(read("zoo/layers/README.md"))
    classes = {name for name in zoo.layers.__all__ if isinstance(getattr(zoo.layers, name), type)}
    assert classes and not {name for name in classes if not name.startswith("Base")} - named
