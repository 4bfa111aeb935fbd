"""Which room imports which, by the table in CONTRIBUTING.md, and what must not be imported at all."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("zoo", "training", "export", "benchmarks", "experiments", "tests", "examples")
HAS_A_PART_FOR_EACH_BACKEND = (
    "zoo.layers.core.graphs",
    "zoo.layers.core.kernels",
    "zoo.layers.core.loops",
    "zoo.layers.execution.running_softmax",
    "zoo.decoding.while_loops",
)
TENSORFLOW = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "tensorflow_serving", "tf_keras"}

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def read_rooms(text):
    """Returns, by room, the prefixes that its modules may import: the rows of the table in CONTRIBUTING.md."""
    rows = re.findall(r"^\| ((?:`[\w.]+` )+)\|[^|]*\|([^|]*)\|$", text, flags=re.MULTILINE)
    names = re.compile(r"`([\w.]+)`").findall
    listed = [(room, (room, *names(allowed))) for rooms, allowed in rows for room in names(rooms)]
    assert len(listed) == len(dict(listed)), "a room has two rows"
    return dict(listed)


# The longest prefix of a module's name counts.
ALLOWED = read_rooms(CONTRIBUTING)


def modules():
    """Returns (module name, path) of every module that is packaged, of the benchmarks and of the experiments."""
    paths = [path for room in ROOMS[:5] for path in sorted((ROOT / room).rglob("*.py"))]
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in paths]


@functools.cache
def _imports(path, module):
    """Returns the absolute names that a module imports: all of them, and those that it does while it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(
        [name for node in nodes for name in named_by(node, package)] for nodes in (ast.walk(tree), at_import(tree))
    )


def imports(path, module, everywhere=True):
    """Returns the absolute names that a module imports, a list; of those in functions only if `everywhere`."""
    return _imports(path, module)[0 if everywhere else 1]


def named_by(node, package):
    """Yields the absolute names that a statement in a package imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
        for alias in node.names:
            yield f"{base}.{alias.name}" if is_module(base, alias.name) else base
    elif is_dynamic_import(node):
        yield node.args[0].value


@functools.cache
def is_module(package, name):
    path = ROOT.joinpath(*package.split("."), name)
    return path.is_dir() or path.with_suffix(".py").is_file()


def is_dynamic_import(node):
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
        return False
    return isinstance(node.func, ast.Attribute) and node.func.attr == "import_module"


def at_import(node):
    """Yields the nodes that run when the module is imported: not the bodies of functions or of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import(child)


def within(name, prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def room_of(module):
    """Returns the longest name in the table that the module is in; an empty one where there is none."""
    return max((room for room in ALLOWED if within(module, [room])), key=len, default="")


def rule(module):
    return ALLOWED.get(room_of(module), ())


def test_the_table_names_what_exists_and_there_is_something_to_check():
    checked = {module for module, _ in modules()}
    assert {"zoo", "zoo.layers.core.masks", "zoo.models.catalog", "training.train", "export.serve"} <= checked
    assert {"zoo", "zoo.layers", "training", "export", "benchmarks"} <= {*ALLOWED}
    assert not {name for room in ALLOWED for name in ALLOWED[room]} - checked


def test_rooms_import_what_the_table_allows_and_all_of_it():
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path, module)
        if name.split(".")[0] in ROOMS and not within(name, rule(module))
    ]
    assert not wrong
    used = {room: {room} for room in ALLOWED}
    for module, path in modules():
        room = room_of(module)
        for name in imports(path, module):
            used[room] |= {prefix for prefix in ALLOWED[room] if within(name, [prefix])}
    spare = [f"{room} need not import {prefix}" for room in ALLOWED for prefix in {*ALLOWED[room]} - used[room]]
    assert not spare


def test_the_server_has_one_door():
    names = {
        (module, name)
        for module, path in modules()
        if not within(module, ["export.server"])
        for name in imports(path, module)
        if within(name, ["export.server"])
    }
    assert names == {("export.serve", "export.server")}, "and uses what `export/server/__init__.py` names"


def raise_for_circle(paths):
    """Raises CycleError, which names the circle, if modules import each other in a circle, also in functions."""
    graph = {module: set(imports(path, module)) - {module} for module, path in paths}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_circles_of_modules():
    raise_for_circle(modules())


def test_a_circle_is_found_in_functions_and_in_type_checking(tmp_path):
    sources = {
        "a": "import keras\nimport house.b",
        "b": "def f():\n    from house.c import g",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.a import f",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    paths = [(f"house.{name}", tmp_path / f"{name}.py") for name in sources]
    with pytest.raises(graphlib.CycleError) as error:
        raise_for_circle(paths)
    assert {*error.value.args[1]} == {"house.a", "house.b", "house.c"}
    raise_for_circle(paths[1:])


def test_tensorflow_is_not_imported_with_zoo_and_layers_are_written_in_keras_alone():
    # They run on JAX and PyTorch without it; the graph half of the tokenizers is asked for by name.
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        if within(module, ["zoo", "training"])
        for name in imports(path, module, everywhere=False)
        if name.split(".")[0] in TENSORFLOW
    ]
    assert not wrong
    backends = TENSORFLOW | {"torch", "jax", "numpy"}
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        if within(module, ["zoo.layers", "zoo.models", "zoo.decoding"]) and module not in HAS_A_PART_FOR_EACH_BACKEND
        for name in imports(path, module)
        if name.split(".")[0] in backends or name.startswith("keras.src")
    ]
    assert not wrong


PROGRAM = """
import importlib, sys, zoo
assert zoo.get_spec(zoo.list_models()[0])
heavy = {'keras', 'tensorflow', 'tensorflow_text', 'jax', 'torch', 'sentencepiece', 'numpy'} & {*sys.modules}
if heavy:
    sys.exit(f'listing models imports {sorted(heavy)}')
for name in sys.argv[1:]:
    importlib.import_module(name)
    if early := {'keras', 'tensorflow', 'jax', 'torch'} & {*sys.modules}:
        sys.exit(f'{name} imports {sorted(early)}')
"""


def test_listing_models_is_light_and_commands_start_before_their_backend():
    # TensorFlow's greeting is kept back, and oneDNN chosen, only where a command imports it itself.
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    commands = [script.partition(":")[0] for script in scripts.values()]
    assert "training.train" in commands
    words = [sys.executable, "-c", PROGRAM, *commands]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_walk_sees_every_kind_of_import(tmp_path):
    for source, expected in {
        "import zoo.layers.core.masks": ["zoo.layers.core.masks"],
        "from zoo import layers": ["zoo.layers"],
        "from zoo.layers.core.masks import check_mask": ["zoo.layers.core.masks"],
        "from . import cache": ["zoo.layers.attention.cache"],
        "from ...errors import InputError": ["zoo.errors"],
        "def f():\n    importlib.import_module('export.serve')": ["export.serve"],
        "if TYPE_CHECKING:\n    import keras": ["keras"],
    }.items():
        path = tmp_path / f"{len(source)}.py"
        path.write_text(source, encoding="utf-8")
        assert imports(path, "zoo.layers.attention.module") == expected
        later = "def" in source or "TYPE_CHECKING" in source
        assert imports(path, "zoo.layers.attention.module", everywhere=False) == ([] if later else expected)
