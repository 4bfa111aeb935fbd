"""Which extra of this distribution brings which module, so that a missing one is named with its cure."""

import sys
from pathlib import Path
from types import TracebackType

from zoo.errors import InputError

EXTRAS = {
    "train": ("babel", "google_crc32c", "sacrebleu", "tensorboardX", "tqdm", "yaml"),
    "tensorflow": ("tensorflow", "tensorflow_datasets", "tensorflow_text"),
    "jax": ("jax",),
    "hosts": ("orbax", "tensorstore"),
    "torch": ("torch",),
    "hub": ("huggingface_hub",),
    "serve": (
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "prometheus_client",
        "tensorflow_serving",
        "waitress",
        "werkzeug",
    ),
    "pictures": ("devanagari_fonts", "matplotlib", "noto_cjk_sans_jp_regular"),
    "beam": ("apache_beam",),
    "zstd": ("zstandard",),
}
"""The modules that each extra brings, besides those of the extras that it includes."""


def missing_extra(error: ModuleNotFoundError) -> InputError | None:
    """Returns the error for a module that is not installed; `None` if no extra has it."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None or module in sys.modules:  # there in part, or hidden on purpose: an error of another kind
        return None
    return InputError(f"This needs {module}, which is not installed: {install_command(extra)}.")


def install_command(extra: str) -> str:
    """Returns the command that installs an extra: from the clone that this code is in, else beside the package."""
    root = Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'attention-zoo[{extra}]'"
    return f"pip install -e '{'.' if root == Path.cwd() else root}[{extra}]'"


def name_missing_extras() -> None:
    """Makes a command of this project that misses an extra end with one line and status 2, as `run_command` does.

    A package whose modules need an extra when they are imported, which is before `run_command` runs, calls this first.
    In programs other than our commands nothing changes.
    """
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program != "-m" and not program.startswith("attention-zoo-"):
        return
    others = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is None:
            others(kind, error, traceback)
            return
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(2)

    sys.excepthook = report
