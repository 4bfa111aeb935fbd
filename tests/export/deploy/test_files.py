"""The deployment files, as far as they can be checked without a container engine.

Each file agrees with the tool that reads it, and with the others: schemas, flags, paths, ports and names.
"""

import copy
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml
from support.deploy_files import (
    CONFIG,
    DEPLOY,
    KUBERNETES,
    MODEL,
    NAMES,
    OLDEST_SERVER,
    STOCK_FLAGS,
    compose,
    config,
    containers,
    deployment,
    documents,
    flags,
    kserve,
    manifests,
    patched,
)

from export.deploy import ssl_config
from export.server import ServerSettings
from export.server.config_files import read_config
from export.server.settings import channel_arguments

# Schemas


KINDS = {"Deployment", "HorizontalPodAutoscaler", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "Service"}


@pytest.mark.parametrize("release", KUBERNETES)
def test_kubernetes_schemas(release):
    """Of KServe the parts that are Kubernetes' own; the rest against the fields of KServe 0.21."""
    validate = pytest.importorskip("kubernetes_validate").validate
    for items in (manifests(), patched()):
        found = {kind: manifest for (kind, _), manifest in items.items() if kind != "Kustomization"}
        assert found.keys() == KINDS
        for (kind, _), manifest in items.items():
            if kind in KINDS:
                validate(manifest, release, strict=True)
    runtime, predictor = kserve()
    pod = {key: runtime[key] for key in ("containers", "volumes")}
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}, release, strict=True)
    assert set(runtime) <= {"annotations", "supportedModelFormats", "protocolVersions", *pod}
    assert set(predictor) <= {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "model"}
    assert set(predictor["model"]) <= {"runtime", "modelFormat", "storageUri"}
    assert predictor["model"]["runtime"] == documents("kserve.yaml")[0]["metadata"]["name"]
    (offered,) = runtime["supportedModelFormats"]
    assert predictor["model"]["modelFormat"].items() <= offered.items()


def test_compose_schema():
    parse = pytest.importorskip("compose_spec").PyCompose.from_yaml
    services = copy.deepcopy(documents("compose.yaml")[0])
    # The parser leaves merge keys and variables to its caller.
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", yaml.safe_dump(services))
    parse(text)
    with pytest.raises(ValueError, match="commnd"):
        parse(text.replace("command:", "commnd:"))


# The server's own: image, flags, files


@pytest.mark.parametrize("name", NAMES)
def test_a_container(name):
    """Its image is pinned and new enough; its flags are the stock server's, and its limits those of the stand-in."""
    image, words, described = containers()[name]
    match = re.fullmatch(r"tensorflow/serving:(\d+)\.(\d+)\.\d+", image)
    assert match and tuple(map(int, match.groups())) >= OLDEST_SERVER
    assert image == containers()["serving"][0]
    given = flags(name)
    assert len(given) == len(words), "a flag given twice"
    assert set(given) <= set(STOCK_FLAGS)
    options = channel_arguments(given["grpc_channel_arguments"])
    assert options["grpc.max_receive_message_length"] == ServerSettings().max_request_bytes
    batching = config("batching_parameters_file", "batching_parameters.txt")
    assert given["enable_batching"] == "true" and batching.max_batch_size.value <= ServerSettings().max_request_rows
    limits = described["resources"]["limits"]
    cores = int(limits.get("cpus") or limits["cpu"])
    assert given["tensorflow_inter_op_parallelism"] == str(cores) == str(batching.num_batch_threads.value)
    assert given["tensorflow_intra_op_parallelism"] == "1"
    check_mounted(name)


def test_batching_parameters_are_such_as_the_server_accepts():
    batching = config("batching_parameters_file", "batching_parameters.txt")
    sizes = list(batching.allowed_batch_sizes)
    assert sizes == sorted(set(sizes)) and sizes[-1] == batching.max_batch_size.value
    assert batching.HasField("batch_timeout_micros")
    assert batching.batch_timeout_micros.value == 0, "none waits for company"
    assert batching.max_enqueued_batches.value > 0


def test_models():
    for name, versions in (("models.config", []), ("models.pinned.config", [1])):
        (model,) = config("model_config_file", name).model_config_list.config
        assert (model.name, model.base_path, model.model_platform) == (MODEL, f"/models/{MODEL}", "tensorflow")
        assert list(model.model_version_policy.specific.versions) == versions


def test_monitoring_and_annotations():
    monitoring = config("monitoring_config_file", "monitoring_config.txt").prometheus_config
    assert monitoring.enable
    annotations = manifests()["Deployment", MODEL]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == monitoring.path
    assert annotations["prometheus.io/port"] == flags("kubernetes")["rest_api_port"]
    annotations = kserve()[0]["annotations"]
    assert annotations["prometheus.kserve.io/path"] == monitoring.path
    assert annotations["prometheus.kserve.io/port"] == flags("kserve")["rest_api_port"]


def files_of_pod(pod, maps):
    """Returns the paths that a pod's mounted maps and secrets have, by what they come from."""
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    found = {}
    for volume in pod["volumes"]:
        source = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
        for key in maps.get(source, ()):
            found[f"{mounts[volume['name']]}/{key}"] = source
    return found


def check_mounted(name):
    """Checks that the files are mounted that flags name."""
    (generated,) = documents("config/kustomization.yaml")[0]["configMapGenerator"]
    for entry in generated["files"]:
        assert (CONFIG / entry.rpartition("=")[2]).is_file()
    keys = [entry.partition("=")[0] for entry in generated["files"]]
    maps = {generated["name"]: keys, "en-de-ssl": ["ssl_config.txt"]}
    if name == "kserve":
        there = files_of_pod(kserve()[0], {"attention-zoo-config": [path.name for path in CONFIG.iterdir()]})
    elif name.startswith("kubernetes"):
        there = files_of_pod(deployment(patched() if name.endswith("tls") else None), maps)
    else:
        assert "./config:/config:ro" in compose()[name]["volumes"]
        there = {f"/config/{path.name}" for path in CONFIG.iterdir()} | {"/run/secrets/ssl_config"}
    named = {flag: value for flag, value in flags(name).items() if flag.endswith("_file")}
    assert {"batching_parameters_file", "monitoring_config_file"} <= set(named)
    assert ("ssl_config_file" in named) == name.endswith("tls")
    assert set(named.values()) <= set(there)


def test_files_are_read_by_their_owner():
    """Compose mounts files as they are, the secret with mode 0600, and takes from root what would let it read them."""
    pod = deployment()["securityContext"]
    for service in compose().values():
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == f"${{RUN_AS:-{pod['runAsUser']}:{pod['runAsGroup']}}}"


def test_models_are_mounted():
    for service in compose().values():
        assert "${MODELS:-../../exported}:/models:ro" in service["volumes"]
    pod = deployment()
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "models")
    claim = ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    assert claim in manifests()
    upload = manifests()["Pod", "upload"]["spec"]
    assert upload["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim[1]
    mounts = {mount["mountPath"] for item in (pod, upload) for mount in item["containers"][0]["volumeMounts"]}
    assert "/models" in mounts
    assert flags("kserve")["model_base_path"] == "/mnt/models"  # where KServe puts what it fetched
    assert kserve()[1]["model"]["storageUri"] == f"pvc://{claim[1]}/{MODEL}"


# Ports, probes, names


def test_ports_of_compose():
    for name, service in compose().items():
        inside = [port.rpartition(":")[2] for port in service["ports"]]
        assert inside == [flags(name)["port"], flags(name)["rest_api_port"]]
    assert compose()["serving-tls"]["command"][:-1] == compose()["serving"]["command"]


def test_ports_of_kubernetes():
    (container,) = deployment()["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    chosen = flags("kubernetes")
    assert ports == {"grpc": int(chosen["port"]), "http": int(chosen["rest_api_port"])}
    assert container["livenessProbe"]["grpc"]["port"] == ports["grpc"]
    assert chosen["enable_grpc_healthcheck_service"] == "true"
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": f"/v1/models/{MODEL}/metadata", "port": "http"}
    services = [item for (kind, _), item in manifests().items() if kind == "Service"]
    assert len(services) == 2
    for service in services:
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


def test_ports_of_kserve():
    (container,) = kserve()[0]["containers"]
    (port,) = container["ports"]
    assert (container["name"], port["containerPort"]) == ("kserve-container", int(flags("kserve")["rest_api_port"]))
    assert container["readinessProbe"]["httpGet"] == {"path": "/v1/models/{{.Name}}/metadata", "port": 8080}


def test_tls_probes_need_no_tls():
    (container,) = deployment(patched())["containers"]
    assert "grpc" not in container["livenessProbe"] and container["livenessProbe"]["tcpSocket"] == {"port": "grpc"}


def test_selectors_find_the_pods():
    items = manifests()
    labels = items["Deployment", MODEL]["spec"]["template"]["metadata"]["labels"]
    assert items["Deployment", MODEL]["spec"]["selector"]["matchLabels"] == labels
    for (kind, _), item in items.items():
        if kind in ("Service", "PodDisruptionBudget"):
            selector = item["spec"]["selector"]
            assert selector.get("matchLabels", selector) == labels
    target = items["HorizontalPodAutoscaler", MODEL]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) in items
    assert "replicas" not in items["Deployment", MODEL]["spec"], "the autoscaler's number would be overwritten"


def test_a_pod_outlives_its_last_calls():
    pod = deployment()
    wait = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert 0 < wait < pod["terminationGracePeriodSeconds"]
    assert manifests()["Deployment", MODEL]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_kustomizations_name_what_exists():
    for folder in ("config", "kubernetes", "kubernetes-tls"):
        for name in documents(f"{folder}/kustomization.yaml")[0].get("resources", []):
            path = (DEPLOY / folder / name).resolve()
            assert path.is_file() or (path / "kustomization.yaml").is_file(), path
            assert path not in (DEPLOY / folder).resolve().parents, "kustomize refuses a base around its overlay"


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (404, False)])
def test_the_health_check_of_compose(status, healthy):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == f"/v1/models/{MODEL}/metadata" else 500)
            self.end_headers()

        def log_message(self, *_):
            pass

    _, shell, *words = compose()["serving"]["healthcheck"]["test"]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    with HTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = words[-1].replace("localhost/8501", f"localhost/{server.server_port}")
        result = subprocess.run([shell, *words[:-1], line], timeout=30, capture_output=True)
        server.shutdown()
    assert (result.returncode == 0) == healthy


# TLS


def test_the_example_and_the_command_write_the_same_fields(tmp_path):
    example = config("ssl_config_file", "ssl_config.example")
    for name, value in {"key": example.server_key, "cert": example.server_cert, "ca": example.custom_ca}.items():
        (tmp_path / name).write_text(value)
    parts = [f"--key={tmp_path / 'key'}", f"--cert={tmp_path / 'cert'}"]
    output = tmp_path / "ssl_config.txt"
    ssl_config.main([*parts, f"--client_ca={tmp_path / 'ca'}", f"--output={output}"])
    assert read_config("ssl_config_file", str(output)) == example
    assert output.stat().st_mode & 0o777 == 0o600
    output.chmod(0o644)
    ssl_config.main([*parts, f"--output={output}"])
    assert output.stat().st_mode & 0o777 == 0o600
    without = read_config("ssl_config_file", str(output))
    assert (without.server_key, without.custom_ca, without.client_verify) == (example.server_key, "", False)


def test_files_that_are_no_pem(tmp_path, capsys):
    path = tmp_path / "key"
    for content, message in ((None, "No such file"), ("ß", "PEM")):
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(SystemExit) as caught:
            ssl_config.main([f"--key={path}", f"--cert={path}", f"--output={tmp_path / 'out'}"])
        assert caught.value.code == 2 and message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
