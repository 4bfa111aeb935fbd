"""Virtual environments of the peers, whose requirements conflict with TensorFlow's or one another's."""

import subprocess
import sys

from benchmarks.runner.process import ROOT, Failed

FOLDER = ROOT / "runs" / "peers"

# An open range of torch takes gigabytes of CUDA packages.
TORCH = ["torch==2.13.0", "numpy==2.4.6"]
REQUIREMENTS = {
    "ctranslate2": ["ctranslate2==4.8.5", "numpy>=2", "grpcio==1.85.1", "sentencepiece==0.2.3"],
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
    """Returns the Python of a peer's environment, which is created if it is missing or has other pins.

    Raises `Failed` if it cannot be created.
    """
    requirements, folder = REQUIREMENTS[peer], FOLDER / peer
    python, ready = str(folder / "bin" / "python"), folder / ".ready"
    pins = "\n".join(requirements)
    if not ready.exists() or ready.read_text(encoding="utf-8") != pins:
        print(f"Setting up {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], "python -m venv")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        _run(install, f"pip install {' '.join(requirements)}")
        ready.write_text(pins, encoding="utf-8")
    return python


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith(("ERROR", "Error"))]
        raise Failed(f"{name}: {errors[-1] if errors else done.returncode}")
