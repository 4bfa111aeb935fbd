"""A server with everything on, shared by the tests of what carries requests."""

import pytest
from support.server_models import publish, question, record, serving


@pytest.fixture(scope="module")
def base(scale_models, tmp_path_factory):
    base = tmp_path_factory.mktemp("transport")
    publish(scale_models[2], base / "1")
    record(base / "1", question())
    return base


@pytest.fixture(scope="module")
def served(base):
    """A server with everything on, and how to ask it."""
    file = base / "monitoring.pbtxt"
    file.write_text('prometheus_config { enable: true path: "/metrics" }')
    settings = {"rest_api_enable_cors_support": True, "enable_grpc_healthcheck_service": True}
    with serving(base, rest_api_port=0, monitoring_config_file=str(file), **settings) as both:
        yield both


@pytest.fixture(scope="module")
def ask(served):
    return served[1]
