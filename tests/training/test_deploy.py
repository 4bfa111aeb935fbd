"""The files that start trainings on clusters, as far as they can be checked without one."""

import copy
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from support.deploy_files import KUBERNETES
from support.processes import SETTINGS, Trainings, write_lines

from training.config.resolve import TrainingRequest
from training.hardware.cluster import Cluster
from training.train import _parser
from zoo.registry import get_spec
from zoo.runtime.cli import run_command

DEPLOY = Path(__file__).resolve().parents[2] / "training" / "deploy"
JOB_SETS = ("jobset.yaml", "jobset-tpu.yaml")


def read(name):
    return (DEPLOY / name).read_text("utf-8")


def jobs(name):
    (job_set,) = yaml.safe_load_all(read(name))
    (jobs,) = job_set["spec"]["replicatedJobs"]
    return job_set, jobs


def command_of(name):
    """Returns the words after `training.train` in a file, with the variables of a shell replaced."""
    _, _, text = read(name).replace("\\\n", " ").partition("python -m training.train ")
    line = text.splitlines()[0]
    values = {"model": "transformer_big", "corpus": "c", "run": "runs/hosts", "JOB_COMPLETION_INDEX": "31"}
    line = re.sub(r"\$\{?(\w+)(\[@\])?\}?", lambda match: values.get(match[1], ""), line)
    return [word for word in shlex.split(line) if word]


def services(**variables):
    """Returns the words of each process of Compose's file, with its variables replaced."""
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: variables.get(match[1], match[2]), read("compose.yaml"))
    return {name: service["command"].split() for name, service in yaml.safe_load(text)["services"].items()}


def test_kubernetes_schemas(subtests):
    """The jobs are Kubernetes' own; what is around them against the fields of JobSet v1alpha2."""
    validate = pytest.importorskip("kubernetes_validate").validate
    for name in JOB_SETS:
        job_set, replicated = jobs(name)
        assert (job_set["apiVersion"], job_set["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
        assert set(job_set["spec"]) <= {"failurePolicy", "replicatedJobs"}
        assert set(replicated) == {"name", "replicas", "template"}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **replicated["template"]}
        spec = job["spec"]
        assert spec["completions"] == spec["parallelism"] and spec["completionMode"] == "Indexed"
        for release in KUBERNETES:
            with subtests.test(f"{name} on Kubernetes {release}"):
                validate(job, release, strict=True)


def test_compose_schema():
    parse = pytest.importorskip("compose_spec").PyCompose.from_yaml
    content = copy.deepcopy(yaml.safe_load(read("compose.yaml")))
    content.pop("x-process")
    assert parse(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", yaml.safe_dump(content))) is not None


@pytest.mark.parametrize("name", [*JOB_SETS, "slurm.sh"])
def test_commands_parse(name):
    arguments = _parser().parse_args(command_of(name))
    request = TrainingRequest(arguments.model, arguments.data, arguments.set)
    assert request.requested(get_spec(arguments.model)) and arguments.data.startswith("prepared:")
    named = (arguments.coordinator, arguments.num_processes, arguments.process_id, arguments.join_seconds)
    cluster = Cluster.of(*named)
    assert (cluster is None) == (name != "jobset.yaml")
    if cluster is not None:
        job_set, replicated = jobs(name)
        assert cluster.num_processes == replicated["template"]["spec"]["completions"]
        # A pod of an indexed job of a set is called SET-JOB-REPLICA-INDEX, in the domain of the set.
        host = f"{job_set['metadata']['name']}-{replicated['name']}-0-0.{job_set['metadata']['name']}"
        (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
        assert cluster.coordinator == f"{host}:{container['ports'][0]['containerPort']}"


def test_shells_take_the_scripts():
    subprocess.run([shutil.which("bash"), "-n", str(DEPLOY / "slurm.sh")], check=True)
    for name in JOB_SETS:
        (container,) = jobs(name)[1]["template"]["spec"]["template"]["spec"]["containers"]
        subprocess.run([shutil.which("bash"), "-n", "-c", container["args"][0]], check=True)


def test_the_processes_of_compose_find_each_other():
    found = {}
    for name, words in services().items():
        arguments = _parser().parse_args(words)
        found[name] = (arguments.coordinator, arguments.num_processes, arguments.process_id)
    assert found == {f"process-{number}": ("process-0:1234", 2, number) for number in range(2)}


@pytest.mark.nightly
def test_compose_as_two_processes(tmp_path):
    pytest.importorskip("jax")
    from training.prepare import main as prepare

    data = write_lines(tmp_path / "text")
    words = ["--data", data, "--output", str(tmp_path / "corpus"), "--set", "data.tokenizer=chars"]
    assert run_command(prepare, words) == 0
    trainings = Trainings(tmp_path / "runs" / "hosts", 2)
    settings = [setting for setting in SETTINGS if not setting.startswith("data.tokenizer")]
    for number, words in enumerate(services(MODEL="causal_lm_tiny").values()):
        words = words[: words.index("--coordinator")]  # `Trainings` has them for this machine
        words = [word.replace("/corpus", str(tmp_path / "corpus")) for word in words]
        del words[words.index("--workdir") : words.index("--workdir") + 2]
        trainings.start(*words, "--set", *settings, only=number)
    done = trainings.wait()
    assert {status for status, _ in done.values()} == {0}, done
    assert trainings.log()[-1]["final"]
