"""Pages of the models: paper, architecture, options, sizes, and what was measured."""

from collections.abc import Iterator

import zoo
from benchmarks.results.pages import QUALITY_SECTIONS
from benchmarks.results.quality import groups_table
from generate import repository
from generate.problems import Problems
from generate.tables import option_table, table

VOCABULARY = 8000  # tokens of each side, where a number of parameters is given
CLASSES = 6
TASKS = {
    "seq2seq": "Translate",
    "classifier": "Classify",
    "language_model": "Continue text",
    "sentence_encoder": "Embed texts",
}
# Where a name is a model with one option changed, and the architecture is drawn on the page of the first.
VARIANTS_OF = "transformer_tiny"


def pages(problems: Problems) -> Iterator[tuple[str, str]]:
    """Yields name and content of a page for each named model, and of their list.

    Args:
        problems: Gets the models and options without description.
    """
    rows: dict[str, list[tuple[str, ...]]] = {}
    measured = read_results()
    for name in zoo.list_models():
        spec = zoo.get_spec(name)
        problems.require(spec.summary, f"The model {name} has no summary.")
        for option, declared in spec.declared().items():
            problems.require(declared.meaning, f"The option {option} of the model {name} has no meaning.")
        model = _model(spec)
        parameters = f"{model.count_params():,}"
        paper = f"[{spec.paper.title} ({spec.paper.year})]({spec.paper.url})"
        rows.setdefault(spec.task, []).append((f"[`{name}`]({name}.md)", spec.summary, parameters, paper))
        yield f"models/{name}.md", _page(spec, model, parameters, paper, measured.get(name, []))
        if not name.startswith(f"{VARIANTS_OF}_"):
            yield f"models/{name}.svg", str(zoo.draw_model(model))
    parts = [
        "# Models, by name\n\nThe [overview](../../models.md) helps you to choose. Parameters are counted with the "
        f"defaults and {VOCABULARY:,} tokens for each vocabulary; classifiers have {CLASSES} classes."
    ]
    head = ("model", "what it is", "parameters", "paper")
    parts += [f"## {TASKS.get(task, task)}\n\n{table(head, models)}" for task, models in rows.items()]
    yield "models/index.md", "\n\n".join(parts)


def _model(spec: zoo.ModelSpec):
    sizes = {name: CLASSES if name == "num_classes" else VOCABULARY for name in spec.required}
    return zoo.create_model(spec.name, **sizes)


def _page(spec: zoo.ModelSpec, model, parameters: str, paper: str, measured: list[str]) -> str:
    drawn = VARIANTS_OF if spec.name.startswith(f"{VARIANTS_OF}_") else spec.name
    change = "" if drawn == spec.name else f" It is [`{drawn}`]({drawn}.md) with one option changed; that one is drawn."
    sizes = f"{parameters} parameters with {VOCABULARY:,} tokens for each vocabulary."
    kinds = ", ".join(getattr(model, "attention_kinds", ())) or "none"
    parts = [
        f"# `{spec.name}`",
        f"{spec.summary}{change}",
        table(
            (" ", " "),
            [
                ("paper", paper),
                ("task", TASKS.get(spec.task, spec.task).lower()),
                ("size", sizes),
                ("kinds of attention", kinds),
                ("class", f"`{spec.model_class.replace(':', '.')}`"),
            ],
        ),
        f"![The architecture of {drawn}]({drawn}.svg){{ .picture }}",
        _example(spec),
        "## Measured",
        "\n\n".join(measured) if measured else "Not yet measured.",
        "## Options",
        f'Set by `--set model.OPTION=VALUE`, or as arguments of `zoo.create_model("{spec.name}", …)`.',
        option_table("", spec.declared()),
    ]
    return "\n\n".join(parts) + "\n"


def _example(spec: zoo.ModelSpec) -> str:
    sizes = ", ".join(f"{name}={CLASSES if name == 'num_classes' else VOCABULARY}" for name in spec.required)
    code = f'import zoo\n\nmodel = zoo.create_model("{spec.name}", {sizes})\nprint(zoo.cost(model, query_length=20))'
    return f"```python\n{code}\n```"


def read_results() -> dict[str, list[str]]:
    """Returns what was measured of each model, as tables under the titles of the page of results."""
    tables_of: dict[str, list[str]] = {}
    for section in QUALITY_SECTIONS:
        groups = section.groups()
        for name in dict.fromkeys(group.last["model"] for group in groups):
            measured = groups_table([group for group in groups if group.last["model"] == name])
            page = f"look-up/models/{name}.md"
            tables_of.setdefault(name, []).append(f"**{section.title}**")
            tables_of[name].append(repository.relink(measured, "training/RESULTS.md", page, {}))
    link = "What the columns are, and all other models: [results](../../results.md)."
    return {name: [*tables, link] for name, tables in tables_of.items()}
