"""Planted faults: server and client."""

from tests.mutants.mutant import Mutant

CORE = "tests/export/server/models/test_core.py"
BATCHING = ("tests/export/server/test_batching.py",)
REST = ("tests/export/server/api/test_rest_json.py",)
GRPC = ("tests/export/server/api/test_services.py",)
EXAMPLES = ("tests/export/server/inference/test_examples.py",)
LIMITS = ("tests/export/server/inference/test_limits.py",)
DEADLINES = ("tests/export/server/models/test_saved_model.py::test_a_computation_ends_with_its_deadline",)
TRANSPORT = ("tests/export/server/api/test_rest_transport.py",)
CALLS = ("tests/export/server/api/test_grpc_server.py",)
MONITORING = ("tests/export/server/test_monitoring.py",)
CHANNEL = ("tests/export/client/test_channel.py",)
CLIENT = ("tests/export/client/test_api.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "a model that loads is not there",
        "export/server/models/core.py",
        "self._starting = True",
        "self._starting = False",
        (f"{CORE}::test_a_model_that_loads_answers_so_at_once",),
    ),
    Mutant(
        "health says that a model is served while it loads",
        "export/server/api/grpc_server.py",
        "self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)",
        "self._set_health(health_pb2.HealthCheckResponse.SERVING)",
        (f"{CORE}::test_a_model_that_loads_answers_so_at_once",),
    ),
    Mutant(
        "a client gives up where a model loads",
        "export/client/api.py",
        "if not is_loading(error) or",
        "if is_loading(error) or",
        ("tests/export/client/test_channel.py::test_a_model_that_loads_is_waited_for",),
    ),
    Mutant(
        "a label points to the newest version that has one",
        "export/server/models/core.py",
        "return labels[spec.version_label]",
        "return max(labels.values())",
        (f"{CORE}::test_policies_labels_and_reload",),
    ),
    Mutant(
        "a label may be given to a version that is not loaded",
        "export/server/models/core.py",
        "if not allowed and version not in self.available(model.name):",
        "if not allowed and not self.available(model.name):",
        (f"{CORE}::test_a_configuration_that_is_refused_is_tried_until_it_is_accepted",),
    ),
    Mutant(
        "a version goes although requests are using it",
        "export/server/models/manager.py",
        "self._changed.wait_for(lambda: not servable.users)",
        "pass",
        (f"{CORE}::test_a_version_in_use_stays_until_its_request_is_through",),
    ),
    Mutant(
        "the old version goes before the new one has come",
        "export/server/models/manager.py",
        "failed, states = [], self.states(name)",
        "failed, states = [], self.states(name)\n"
        "        for version in self.available(name) - set(versions):\n"
        "            self._unload(name, version)",
        (f"{CORE}::test_requests_never_fail_while_versions_change",),
    ),
    Mutant(
        "a version that cannot be loaded is not tried again",
        "export/server/models/manager.py",
        "unchanged = version in states and states[version].files == fingerprint(path)",
        "unchanged = version in states and states[version].files is not None",
        (f"{CORE}::test_a_broken_version_replaces_nothing_and_is_tried_again",),
    ),
    Mutant(
        "without a policy all versions are served",
        "export/server/models/versions.py",
        "return set(sorted(versions)[-max(1, policy.latest.num_versions) :])",
        "return set(sorted(versions)[-policy.latest.num_versions :])",
        (f"{CORE}::test_policies_labels_and_reload",),
    ),
    Mutant(
        "a configuration that was refused is not tried again",
        "export/server/model_server.py",
        "if config != self._config or self._refusal:",
        "if config != self._config:",
        (f"{CORE}::test_a_configuration_that_is_refused_is_tried_until_it_is_accepted",),
    ),
    Mutant(
        "an unknown signature is an invalid argument",
        "export/server/inference/predict.py",
        "raise failed_precondition(f'Serving signature key",
        "raise invalid_argument(f'Serving signature key",
        GRPC,
    ),
    Mutant(
        "a deadline over REST is a server's error",
        "export/server/api/rest_server.py",
        '504: "DEADLINE_EXCEEDED"',
        '505: "DEADLINE_EXCEEDED"',
        TRANSPORT,
    ),
    Mutant(
        "a step that has begun runs on after its deadline",
        "export/server/models/saved_model.py",
        "timeout = 0 if seconds is None else max(_SHORTEST_TIMEOUT, int(seconds * 1000))",
        "timeout = 0",
        DEADLINES,
    ),
    Mutant(
        "who has given up is computed all the same",
        "export/server/batching.py",
        "tasks = [task for task in tasks if task.is_awaited()]",
        "tasks = list(tasks)",
        BATCHING,
    ),
    Mutant(
        "a batch gives each request the rows of the first",
        "export/server/batching.py",
        "output[end - task.rows : end]",
        "output[: task.rows]",
        BATCHING,
    ),
    Mutant(
        "one bad request fails all of its batch",
        "export/server/batching.py",
        "for task in tasks:  # One bad request must not fail the others.\n            _answer(queue, [task])",
        "for task in tasks:\n            task.outputs.set_exception(error)",
        BATCHING,
    ),
    Mutant(
        "rows of several outputs come in columns",
        "export/server/api/rest_json.py",
        "for row in zip(*columns.values(), strict=True)]}",
        "for row in columns.values()]}",
        REST,
    ),
    Mutant(
        "bytes come back as text",
        "export/server/api/rest_json.py",
        "if name.endswith(_BYTES_SUFFIX)",
        'if name.endswith("_b64")',
        REST,
    ),
    Mutant(
        "base64 that is none is read as far as it goes",
        "export/wire/text.py",
        "_PATTERN.fullmatch(text)",
        "_PATTERN.match(text)",
        REST,
    ),
    Mutant(
        "a context is not counted for each example",
        "export/server/inference/limits.py",
        "examples.ByteSize() + rows * (context + _EXAMPLE_BYTES)",
        "examples.ByteSize() + context + rows * _EXAMPLE_BYTES",
        LIMITS,
    ),
    Mutant(
        "what gzip unpacks to has no limit",
        "export/server/api/rest_server.py",
        "if len(body) > most:",
        "if len(body) > most + 1:",
        LIMITS,
    ),
    Mutant(
        "the context wins over an example's own feature",
        "export/server/inference/examples.py",
        "[context + example.SerializeToString() for example",
        "[example.SerializeToString() + context for example",
        EXAMPLES,
    ),
    Mutant(
        "requests over REST are counted twice",
        "export/server/api/services.py",
        "if context.entrypoint != REST:",
        "if context.entrypoint:",
        MONITORING,
    ),
    Mutant(
        "what users wrote is logged with every request",
        "export/server/api/services.py",
        "if self._settings.log_contents and status is not StatusCode.OK:",
        "if self._settings.log_requests and status is not StatusCode.OK:",
        MONITORING,
    ),
    Mutant(
        "the socket needs no certificate",
        "export/server/api/grpc_server.py",
        '_add_port(self._server, f"unix:{path.absolute()}", credentials)',
        '_add_port(self._server, f"unix:{path.absolute()}", None)',
        CALLS,
    ),
    Mutant(
        "calls that are through keep their place in the queue",
        "export/server/api/grpc_server.py",
        "self._in_progress -= 1",
        "self._in_progress -= 0",
        CALLS,
    ),
    Mutant(
        "an end does not wait for requests that have been received",
        "export/server/api/http_server.py",
        "while self._is_busy() and time.monotonic() < deadline:",
        "while not self._is_busy() and time.monotonic() < deadline:",
        TRANSPORT,
    ),
    Mutant(
        "the client sends again what was refused for another reason",
        "export/client/channel.py",
        '"retryableStatusCodes": ["UNAVAILABLE"]',
        '"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]',
        CHANNEL,
    ),
    Mutant(
        "every request of a client is drawn with the same seeds",
        "export/client/api.py",
        "rows = range(first, first := first + len(inputs",
        "rows = range(first, first + len(inputs",
        CLIENT,
    ),
    Mutant(
        "a seed for a row draws otherwise than the row",
        "export/client/seeds.py",
        "x = (x ^ x >> 15 ^ x >> 30) * np.uint32(inverse)",
        "x = (x ^ x >> 15) * np.uint32(inverse)",
        ("tests/export/client/test_seeds.py",),
    ),
    Mutant(
        "answers are kept back while a stream pauses",
        "export/client/api.py",
        "while len(pending) > (0 if inputs is None else in_flight - 1):",
        "while len(pending) > in_flight - 1:",
        CLIENT,
    ),
    Mutant(
        "base64 without padding is refused",
        "export/wire/text.py",
        "len(padding) not in (0, expected)",
        "len(padding) != expected",
        ("tests/export/wire/test_text.py",),
    ),
    Mutant(
        "an answer with a line break is several lines",
        "export/wire/text.py",
        'b" ".join(answer.splitlines())',
        "answer",
        ("tests/export/client/test_cli.py::test_an_answer_is_one_line",),
    ),
]
