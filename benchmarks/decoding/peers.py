"""Virtual environments for the peers, which do not fit beside TensorFlow or beside one another."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path("runs") / "peers"
REQUIREMENTS = {"ctranslate2": ["ctranslate2==4.8.5", "numpy>=2"]}


def python_of(peer: str) -> str:
    """Returns the Python of a peer's environment, which is made where it is missing."""
    folder = FOLDER / peer
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        print(f"Setting up {folder}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS[peer]], check=True)
        ready.touch()
    return str(python)
