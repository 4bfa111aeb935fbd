"""Models that leave for other software, and come in again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import zoo
from export import convert
from zoo.errors import InputError


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def write(workdir, to):
    """Writes a work directory as `KIND:OUT` says, and returns the folder."""
    convert.main([str(workdir), "--to", to])
    return Path(to.partition(":")[2])


def save_model(model, workdir):
    """Puts a model in the place of that of a work directory."""
    model.save(workdir / "model.keras")
    (workdir / "checksums.json").unlink()


def changed(workdir, path, **options):
    """Copies a work directory with other options, and a model with random weights that has them."""
    shutil.copytree(workdir, path, ignore=shutil.ignore_patterns("tb", "checkpoints"))
    config = read_json(path / "config.json")
    config["model"] |= options
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    named, chance = dict(config["model"]), np.random.default_rng(5)
    model = zoo.create_model(named.pop("name"), **named)
    for variable in model.weights:
        value = np.asarray(variable)
        variable.assign(value + chance.normal(scale=0.2, size=value.shape).astype("float32"))
    save_model(model, path)
    return path


def exported(run, kind="hf", **options):
    """Returns what a run would be written as, if it had other options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "config", {**run.config, "model": {**run.config["model"], **options}})
        return convert._exported(run, kind)


def refused(run, kind, options, *words):
    """Checks that a format has no room for options, and that the line about it has certain words."""
    with pytest.raises(InputError) as caught:
        exported(run, kind, **options)
    message = str(caught.value)
    assert not [word for word in words if word not in message] and "\n" not in message, message


def assert_same_weights(first, second, prefix=True):
    """Checks that two runs have the same weights under the same paths, the name of the model in front or not."""
    for one, other in zip(first.model.weights, second.model.weights, strict=True):
        paths = [each.path if prefix else each.path.partition("/")[2] for each in (one, other)]
        assert paths[0] == paths[1]
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=paths[0])
