"""The whole path on embedded data: train, evaluate, export, serve, send requests, draw.

Runs the five commands of the README one after another and shows them. Everything lands in `runs/demo`; a second run
continues from there.
"""

import contextlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from training.data.formats.dates import SCRIPTS, days, in_every_script  # noqa: E402

WORKDIR = Path("runs/demo")
EXPORTED = WORKDIR / "exported"
HEATMAP = WORKDIR / "attention.png"
PAGE = WORKDIR / "attention.html"
# A shorter training than the recipe's, chosen on validation dates.
BUDGET = ("training.max_steps=450", "training.eval_every=225", "training.batch_tokens=2048")
BUDGET += ("training.learning_rate=0.005", "training.warmup_steps=60", "model.dropout=0")


def run(*arguments: str) -> str:
    """Shows and runs a command of this project; returns what it printed.

    Args:
        *arguments: Module and arguments.
    """
    print(f"\n$ python -m {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.strip()


@contextlib.contextmanager
def serving():
    """Serves the exported model on free ports; yields the gRPC address."""
    flags = ["--port", "0", "--rest_api_port", "0", "--model_name", "dates", "--model_base_path", str(EXPORTED)]
    print(f"\n$ python -m export.serve {shlex.join(flags)} &", flush=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "export.serve", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        for line in server.stdout:
            print(line, end="", flush=True)
            if ready := re.search(r"gRPC on \S+:(\d+)", line):
                yield f"localhost:{ready.group(1)}"
                break
        else:
            sys.exit("the server did not start")
    finally:
        server.terminate()
        server.wait()


def examples() -> list[tuple[str, str, str]]:
    """Returns script, text and ISO date of one unseen date for each script."""
    chosen = zip(SCRIPTS, days("test")[:: len(days("test")) // len(SCRIPTS)], strict=False)
    return [(script, in_every_script(day, [script])[script], day.isoformat()) for script, day in chosen]


def main() -> None:
    """Runs the demo."""
    rest = ["--resume"] if (WORKDIR / "config.json").exists() else ["--set", *BUDGET]
    run("training.train", "--model", "rnnsearch", "--data", "dates", "--workdir", str(WORKDIR), *rest)
    metrics = json.loads(run("training.evaluate", str(WORKDIR), "--data", "dates", "--split", "test"))
    print(f"exact match on {metrics['examples']:,} dates of the test split: {metrics['exact_match']:.2%}")
    print(run("export.saved_model", str(WORKDIR), "--output", str(EXPORTED)))
    with serving() as address:
        cases = examples()
        client = ["export.client", "--server", address, "--model", "dates"]
        answers = run(*client, *(text for _, text, _ in cases)).splitlines()
        for (script, text, expected), answer in zip(cases, answers, strict=True):
            print(f"  {'right' if answer == expected else 'WRONG'}  {answer}  <-  {text}  ({script})")
        run(*client, "--signature", "attention", "--heatmap", str(HEATMAP), cases[1][1])
        texts = [text for _, text, _ in cases[:3]]
        run("export.explore", "--server", address, "--model", "dates", "--html", str(PAGE), *texts)
    print(f"\nThe attention of the second answer: {HEATMAP}")
    print(f"The attention explorer, a page for the browser: {PAGE}")


if __name__ == "__main__":
    main()
