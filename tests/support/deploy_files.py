"""The deployment files, read for the tests that compare them."""

import copy
import functools
import re
from pathlib import Path

import yaml

from export.deploy import ssl_config
from export.server.config_files import read_config

DEPLOY = Path(ssl_config.__file__).parent
CONFIG = DEPLOY / "config"
README = DEPLOY.parent / "README.md"
MODEL = "en-de"
OLDEST_SERVER = (2, 20)  # the first with TensorFlow Text 2.20
STOCK_FLAGS = """
allow_version_labels_for_unavailable_models batching_parameters_file enable_batching enable_grpc_healthcheck_service
enable_model_warmup enable_per_model_batching_parameters enable_profiler enable_serialization_as_tensor_content
enable_signature_method_name_check file_system_poll_wait_seconds flush_filesystem_caches grpc_channel_arguments
grpc_max_threads grpc_socket_path load_retry_interval_micros max_num_load_retries mixed_precision model_base_path
model_config_file model_config_file_poll_wait_seconds model_name monitoring_config_file num_load_threads
num_request_iterations_for_warmup num_tflite_interpreters_per_pool num_tflite_pools num_unload_threads
per_process_gpu_memory_fraction platform_config_file port prefer_tflite_model
remove_unused_fields_from_bundle_metagraph rest_api_enable_cors_support rest_api_num_threads rest_api_port
rest_api_timeout_in_ms saved_model_tags skip_initialize_tpu ssl_config_file tensorflow_inter_op_parallelism
tensorflow_intra_op_parallelism tensorflow_session_config_file tensorflow_session_parallelism
thread_pool_factory_config_file use_alts_credentials version xla_cpu_compilation_enabled xla_gpu_compilation_enabled
""".split()  # of tensorflow_model_server, after a copy of its model_servers/main.cc of April 2025
KUBERNETES = ("1.33", "1.37")  # the oldest and the newest release that the manifests are held to


@functools.cache
def documents(*names):
    return [document for name in names for document in yaml.safe_load_all((DEPLOY / name).read_text("utf-8"))]


@functools.cache
def manifests():
    """Returns the manifests of `kubernetes/` by kind and name."""
    names = [f"kubernetes/{path.name}" for path in (DEPLOY / "kubernetes").glob("*.yaml")]
    return {(item["kind"], item.get("metadata", {}).get("name")): item for item in documents(*sorted(names))}


@functools.cache
def patched():
    """Returns the manifests with the patches of `kubernetes-tls/` applied."""
    result = copy.deepcopy(manifests())
    for patch in documents("kubernetes-tls/kustomization.yaml")[0]["patches"]:
        target = result[patch["target"]["kind"], patch["target"]["name"]]
        for step in yaml.safe_load(patch["patch"]):
            *path, last = step["path"].strip("/").split("/")
            parent = target
            for key in path:
                parent = parent[int(key) if isinstance(parent, list) else key]
            where = int(last) if isinstance(parent, list) and last != "-" else last
            if step["op"] == "remove":
                del parent[where]
            elif isinstance(parent, list):
                parent.append(step["value"])
            else:
                parent[where] = step["value"]
    return result


def deployment(items=None):
    return (items or manifests())["Deployment", MODEL]["spec"]["template"]["spec"]


def kserve():
    runtime, service = documents("kserve.yaml")
    return runtime["spec"], service["spec"]["predictor"]


def compose():
    return documents("compose.yaml")[0]["services"]


def containers():
    """Returns image, command line and limits of everything that runs the stock server."""
    found = {name: (service["image"], service["command"], service["deploy"]) for name, service in compose().items()}
    pods = {"kubernetes": deployment(), "kubernetes-tls": deployment(patched()), "kserve": kserve()[0]}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        assert container["command"] == ["tensorflow_model_server"]
        found[name] = container["image"], container["args"], container
    return found


NAMES = ["serving", "serving-tls", "kubernetes", "kubernetes-tls", "kserve"]


def flags(name):
    """Returns values by flag; the stock server wants them with an equals sign."""
    return dict(re.fullmatch(r"--(\w+)=(.+)", word).groups() for word in containers()[name][1])


def config(flag, name):
    """Returns the message in one of the configuration files, which `flag` names to a server."""
    return read_config(flag, str(CONFIG / name))
