"""The README: its commands parse as written, and what it names exists."""

import ast
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
README = (ROOT / "README.md").read_text(encoding="utf-8")
OURS = ("zoo", "training", "export", "examples", "benchmarks")


def blocks() -> list[tuple[str, str]]:
    """Returns language and content of the fenced blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def shell_lines() -> list[str]:
    text = "".join(content for language, content in blocks() if language in ("", "sh", "bash", "shell", "console"))
    return text.replace("\\\n", " ").splitlines()


def python_commands() -> list[list[str]]:
    """Returns module and arguments of every `python -m ...` in the blocks."""
    commands = []
    for line in shell_lines():
        if re.search(r"\bpython\S* -m ", line):
            words = shlex.split(line, comments=True)
            start = next(index for index, word in enumerate(words) if re.fullmatch(r"(.*/)?python[\d.]*", word))
            end = next((index for index, word in enumerate(words) if word in ("&", "|", ">", ";", "&&")), len(words))
            commands.append(words[start + 2 : end])
    return commands


def make_targets() -> list[str]:
    in_blocks = [target for line in shell_lines() for target in re.findall(r"^\W*make((?: +[\w-]+)+)", line)]
    in_text = re.findall(r"`make((?: +[\w-]+)+)`", README)
    return [target for targets in in_blocks + in_text for target in targets.split()]


def test_there_is_something_to_check():
    modules = {command[0] for command in python_commands()}
    assert modules >= {
        "training.train",
        "training.evaluate",
        "export.saved_model",
        "export.serve",
        "export.client",
    }, "the five commands"
    assert {"demo", "test"} <= set(make_targets())


@pytest.mark.parametrize("command", python_commands(), ids=" ".join)
def test_commands_parse(command):
    module, *arguments = command
    assert importlib.util.find_spec(module) is not None
    if module.partition(".")[0] in OURS:
        parsed = parse(module, arguments)
        if module == "training.train":
            resolve(parsed.model, parsed.data, parsed.set)


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ([\w.]+)", README))))
def test_modules_exist(module):
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("settings", re.findall(r"`--set ([^`]+)`", README))
def test_settings_exist(settings):
    resolve("transformer_tiny", "text:data:en-de", settings.split())


@pytest.mark.parametrize("target", sorted(set(make_targets())))
def test_make_targets_exist(target):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize("code", [content for language, content in blocks() if language == "python"])
def test_python_names_exist(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zoo":
            assert hasattr(zoo, node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "zoo.create_model":
            assert node.args[0].value in zoo.list_models()


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?://|#)([^)]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (ROOT / link.partition("#")[0]).exists()


def _named_in_rows(text):
    return {name for line in text.splitlines() if line.startswith("|") for name in re.findall(r"`([\w.]+)`", line)}


def test_every_model_has_a_row():
    assert zoo.list_models() and not {*zoo.list_models()} - _named_in_rows(README)


def test_every_layer_has_a_row():
    named = _named_in_rows((ROOT / "zoo" / "layers" / "README.md").read_text(encoding="utf-8"))
    classes = {name for name in zoo.layers.__all__ if isinstance(getattr(zoo.layers, name), type)}
    assert classes and not {name for name in classes if not name.startswith("Base")} - named
