"""Trains a named model: `python -m training.train --model NAME --data SPEC --workdir DIR [--set key=value ...]`."""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from training.config.initial_run import open_workdir
from training.config.resolve import TrainingRequest, TrainingRun, resolve_run
from training.config.settings import SECTIONS, read_settings
from training.config.settings_help import describe
from training.data import spec_forms
from training.hardware import supervisor
from training.hardware.cluster import JOIN_SECONDS, Cluster, find_cluster
from zoo.runtime.cli import ArgumentParser, run_process
from zoo.runtime.startup import start_backend
from zoo.workdir import WorkDir


def _parser(**options: Any) -> ArgumentParser:
    parser = ArgumentParser(prog="training.train", description="Trains a named model into a work directory.", **options)
    parser.add_argument("--model", metavar="NAME", help="a name from zoo.list_models()")
    parser.add_argument("--data", metavar="SPEC", help=spec_forms())
    parser.add_argument("--workdir", metavar="DIR", help="where everything is written; required")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings in TOML, YAML or JSON, in the sections model, data and training; model.name and data.spec in it "
        "replace --model and --data; DIR/config.json repeats the run of a work directory, with its last settings if "
        "resumed runs changed them",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="settings such as training.max_steps=1000, model.dropout=0.1 or data.vocab_size=8000; they override "
        "those of --config",
    )
    parser.add_argument(
        "--init_from",
        metavar="DIR",
        help="begin from the weights of this work directory, or of preset:NAME; see training.init_from",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume the run of the work directory; with --set, most settings of training may change",
    )
    group = parser.add_argument_group(
        "several processes",
        "On JAX; all are started with the same command but for --process_id, and have access to the same --workdir and "
        "data. On SLURM, Kubernetes and TPUs, these options are detected automatically.",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens for the others")
    group.add_argument("--num_processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process_id", type=int, metavar="I", help="index of this process, from 0")
    group.add_argument(
        "--join_seconds",
        type=int,
        default=JOIN_SECONDS,
        metavar="S",
        help="seconds to wait for the others at the start; default %(default)s",
    )
    parser.add_argument(
        "--profile", action="store_true", help="trace a few batches for TensorBoard's profiler, into DIR/tb"
    )
    parser.add_argument(
        "--callback",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="a function that takes the path of the work directory and returns a Keras callback or a list of them, "
        "which observe the training, such as those of Weights & Biases or MLflow; may be repeated. With several "
        "processes, only the chief runs them",
    )
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="train and write nothing; print the costs of a step compiled on JAX: operations, bytes and memory",
    )
    return parser


def _request(arguments: argparse.Namespace) -> TrainingRequest:
    """Returns the request that the arguments describe; the default model is that of the initial run."""
    file = read_settings(arguments.config) if arguments.config else dict.fromkeys(SECTIONS, {})
    model, settings = arguments.model, list(arguments.set)
    if arguments.init_from:
        settings.append(f"training.init_from={arguments.init_from}")
        if model is None and "name" not in file["model"]:
            model = open_workdir(arguments.init_from).read_config()["model"]["name"]
    return TrainingRequest(model, arguments.data, settings, file)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: For bad names, settings or data, or a work directory that contains another run.
    """
    if supervisor.is_worker():
        supervisor.die_with_parent()
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(words):
        _help(words)
        return
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not arguments.workdir:
        parser.error("the following arguments are required: --workdir")
    workdir, request = WorkDir(arguments.workdir), _request(arguments)
    names = zip(("--model", "--data"), request.names(), strict=True)
    missing = [argument for argument, name in names if name is None]
    if missing and not arguments.resume:
        parser.error(f"the following arguments are required: {', '.join(missing)}, unless a --config has them")
    named = (arguments.coordinator, arguments.num_processes, arguments.process_id, arguments.join_seconds)
    cluster = Cluster.of(*named)
    if arguments.dry_run:
        if cluster is not None:
            parser.error("--dry_run is for one process, which may have all devices of a mesh (docs/scaling.md)")
        _print_costs(workdir, resolve_run(workdir, request, arguments.resume))
        return
    if not supervisor.is_worker():
        cluster = cluster or find_cluster(arguments.join_seconds)
        if cluster is not None:
            _supervise(workdir, cluster, named != dataclasses.astuple(cluster))
    # All mistakes in the request are reported before the seconds that the backend takes to start.
    run = resolve_run(workdir, request, arguments.resume)
    start_backend()
    from training.hardware.processes import join
    from training.loop.failures import RunStopped, missing_process
    from training.loop.observers import make_callbacks
    from training.loop.trainer import train

    callbacks = make_callbacks(arguments.callback, workdir.path)
    processes = join(cluster)
    metrics: dict[str, Any] = {}
    stopped = None
    with processes.watched(functools.partial(missing_process, workdir)):
        try:
            metrics = train(workdir, run, arguments.profile, processes, callbacks)
        except RunStopped as error:
            stopped = error
            if not error.everywhere:
                processes.report(str(error).partition("; ")[0])  # each process adds how to resume
        if stopped is None or stopped.everywhere:
            processes.leave()
    if stopped is not None:
        print(f"{'error: ' if stopped.status == 1 else ''}{stopped}", file=sys.stderr)
        processes.end(stopped.status)
    if processes.is_chief:
        print(json.dumps({"workdir": arguments.workdir, **metrics}))


def _print_costs(workdir: WorkDir, run: TrainingRun) -> None:
    """Prints the costs of a step of a run."""
    start_backend()
    from training.loop.dry_run import dry_run
    from training.loop.failures import RunStopped

    try:
        print(json.dumps({"workdir": str(workdir.path), **dry_run(workdir, run)}))
    except RunStopped as error:
        print(f"{'error: ' if error.status == 1 else ''}{error}", file=sys.stderr)
        sys.exit(error.status)


def _supervise(workdir: WorkDir, cluster: Cluster, detected: bool) -> NoReturn:
    """Runs this command in a child process, as a member of a cluster, and exits with its status."""
    from training.loop.failures import missing_process

    status, reason = supervisor.supervise(cluster, cluster.words() if detected else ())
    if reason:
        print(f"error: {missing_process(workdir, reason)}", file=sys.stderr)
    sys.exit(status)


def _help(words: Sequence[str]) -> None:
    """Prints the help, with the options of the model that --model names."""
    parser = _parser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true", help="show this, and with --model the model's options")
    model = parser.parse_known_args(words)[0].model
    print(f"{parser.format_help()}\n{describe(model)}")


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
