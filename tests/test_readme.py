"""The documents: their commands parse as written, what they name exists, and the README is a front door."""

import ast
import functools
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

from support.commands import parse
from support.every import every

import zoo
from training.config.resolve import resolve

ROOT = Path(__file__).resolve().parent.parent
OURS = ("zoo", "training", "export", "examples", "benchmarks", "experiments")
WRITTEN_BY_A_COMMAND = ("docs/evidence/", "docs/faults.md", "docs/parity.md")
TESTED_ELSEWHERE = ("docs/introductions.md",)  # in tests/introductions
DIARY = "docs/lab-notes/"  # has the commands of its day
PAGES = [
    page
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not (page := str(path.relative_to(ROOT))).startswith((*WRITTEN_BY_A_COMMAND, *TESTED_ELSEWHERE, DIARY))
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


def found(search, pages) -> list[tuple]:
    """Returns (page, what `search` finds there) for some pages, each once."""
    everything = [(page, item) for page in pages for item in search(page)]
    return [pair for number, pair in enumerate(everything) if pair not in everything[:number]]


def test_there_is_something_to_check_and_the_readme_is_a_front_door():
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
    assert len(read("README.md").splitlines()) <= 120


def check_each(search, check, pages=PAGES):
    """Calls `check` with a page and each thing that `search` finds there, and fails with all that fail."""
    pairs = found(search, pages)
    assert pairs, "there is nothing to check"
    with every() as failures:
        for page, item in pairs:
            with failures.of(f"{item} of {page}"):
                check(page, item)


def test_commands_parse():
    def check(page, command):
        module, *arguments = command
        assert importlib.util.find_spec(module) is not None
        if module.partition(".")[0] in OURS:
            parsed = parse(module, arguments)
            # What token shards fix is in their folder, which is not here.
            if module == "training.train" and parsed.model and not parsed.resume and "prepared:" not in parsed.data:
                resolve(parsed.model, parsed.data, parsed.set)

    check_each(python_commands, check)


def test_modules_and_settings_exist():
    def check(page, module):
        assert importlib.util.find_spec(module) is not None

    check_each(lambda page: re.findall(r"python -m (\w[\w.]*\w)", read(page)), check)

    def check(page, settings):
        resolve("transformer_tiny", "text:data:en-de", settings.split())

    check_each(lambda page: re.findall(r"`--set ([^`]+)`", read(page)), check)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    def check(page, target):
        assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.MULTILINE)

    check_each(make_targets, check)


def test_python_names_exist():
    def check(page, code):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in OURS:
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zoo":
                assert hasattr(zoo, node.attr)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "zoo.create_model":
                assert node.args[0].value in zoo.list_models()

    check_each(lambda page: [code for language, code in blocks(page) if language == "python"], check)


def test_links_lead_somewhere():
    _check_links(PAGES)


def test_links_of_results_and_lab_notes_lead_somewhere():
    notes = [str(path.relative_to(ROOT)) for path in sorted((ROOT / DIARY).glob("*.md"))]
    assert len(notes) > 20 and all(f"]({Path(note).name})" in read(f"{DIARY}index.md") for note in notes[:-1])
    _check_links([*notes, "results/README.md", "training/RESULTS.md", "benchmarks/RESULTS.md", "CHANGELOG.md"])


def _check_links(pages):
    def check(page, link):
        path = (ROOT / page).parent.joinpath(link.partition("#")[0]).resolve()
        made = path.relative_to(ROOT).as_posix().startswith("docs/look-up/")  # `make docs` checks that it is there
        assert path.exists() or path.with_suffix(".py").exists() or made

    check_each(lambda page: re.findall(r"\]\((?!https?://|#)([^)\s]+)\)", read(page)), check, pages)


def _named_in_rows(text):
    return {name for line in text.splitlines() if line.startswith("|") for name in re.findall(r"`([\w.]+)`", line)}


def test_every_model_and_every_layer_has_a_row():
    assert zoo.list_models() and not {*zoo.list_models()} - _named_in_rows(read("docs/models.md"))
    named = _named_in_rows(read("zoo/layers/README.md"))
    classes = {name for name in zoo.layers.__all__ if isinstance(getattr(zoo.layers, name), type)}
    assert classes and not {name for name in classes if not name.startswith("Base")} - named
