"""Virtual environments for the peers, which do not fit beside TensorFlow or beside one another."""

import subprocess
import sys

from benchmarks.process import Failed
from benchmarks.timing import ROOT

FOLDER = ROOT / "runs" / "peers"

# An open range of torch takes gigabytes of CUDA packages.
TORCH = ["torch==2.13.0", "numpy==2.4.6"]
REQUIREMENTS = {
    "ctranslate2": ["ctranslate2==4.8.5", "numpy>=2"],
    "kerashub": [
        "keras-hub==0.32.0",
        "keras==3.15.1",
        "tensorflow==2.21.0",
        "tensorflow-text==2.21.1",
        "protobuf==6.33.6",
    ],
    "pytorch": TORCH,
    "hugging_face": ["transformers==5.23.0", *TORCH],
    "opennmt_tf": ["OpenNMT-tf==2.32.0", "tensorflow==2.13.1"],
    "joey_nmt": ["joeynmt==2.3.0", "importlib-metadata==10.2.0", "torch==2.13.0"],
    "model_garden": ["tf-models-official==2.20.0"],
}


def python_of(peer: str) -> str:
    """Returns the Python of a peer's environment, which is made where it is missing or has other pins.

    Args:
        peer: One of `REQUIREMENTS`.

    Raises:
        Failed: If it cannot be made.
    """
    folder = FOLDER / peer
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = "\n".join(REQUIREMENTS[peer])
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted:
        print(f"Setting up {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], stderr=subprocess.PIPE, text=True)
        if made.returncode:
            raise Failed(f"python -m venv: {made.stderr.strip() or made.returncode}")
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS[peer]]
        done = subprocess.run(install, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise Failed(f"pip install {' '.join(REQUIREMENTS[peer])}: {lines[-1] if lines else done.returncode}")
        ready.write_text(wanted, encoding="utf-8")
    return str(python)
