"""Exports load and answer in C++, with the library that TensorFlow Serving is made of, and no Python."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel

SOURCE = Path(__file__).with_name("cpp") / "serve_once.cc"
TEXT = "5 mai horse ß😀"
NUMBERS = {"hypothesis": 0, "seed": 3, "temperature": 0.5, "top_p": 0.9}

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = Path(tf.__file__).parent
    binary = tmp_path_factory.mktemp("cpp") / "serve_once"
    libraries = ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    subprocess.run(
        ["g++", "-O1", "-w", *tf.sysconfig.get_compile_flags(), str(SOURCE), "-o", str(binary)]
        + [f"-L{folder}", *libraries, f"-Wl,-rpath,{folder}"],
        check=True,
    )
    return binary


def question(name, signature):
    """Returns the line that asks a signature, and what Python is asked."""
    fields, feed = [name], {}
    for key in signature.inputs.keys() - signature.defaults.keys():
        if key in NUMBERS:
            kind = "int" if isinstance(NUMBERS[key], int) else "float"
            fields.append(f"{key}={kind}:{NUMBERS[key]}")
            feed[key] = np.array(NUMBERS[key], np.int32 if kind == "int" else np.float32)
        elif key == "inputs":
            example = tf.train.Example()
            example.features.feature["text"].bytes_list.value.append(TEXT.encode())
            fields.append(f"{key}=hex:{example.SerializeToString().hex()}")
            feed[key] = np.array([example.SerializeToString()], object)
        else:
            fields.append(f"{key}=text:{TEXT}")
            feed[key] = np.array([TEXT.encode()], object)
    return "\t".join(fields), feed


@pytest.mark.parametrize("task", ["text", "labelled", "lines"])
def test_every_signature_answers_as_in_python(task, program, request_export):
    folder = request_export(task) / "1"
    model = LoadedModel(folder, 1)
    asked = {name: question(name, model.signatures[name]) for name in sorted(model.signatures)}
    libraries = sorted((Path(sysconfig.get_path("purelib")) / "tensorflow_text/python/ops").glob("_sentencepiece*.so"))
    lines = "".join(f"{line}\n" for line, _ in asked.values())
    done = subprocess.run(
        [str(program), str(folder), *map(str, libraries)], input=lines, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    blocks = done.stdout.split("\n\n")[: len(asked)]
    for (name, (_, feed)), block in zip(asked.items(), blocks, strict=True):
        expected = model.predict(name, feed)
        outputs = {key: (dtype, values) for key, dtype, values in (row.split("\t") for row in block.split("\n"))}
        assert outputs.keys() == expected.keys()
        for key, (dtype, values) in outputs.items():
            found = values.split(",")
            if dtype == "string":
                assert [bytes.fromhex(text) for text in found] == expected[key].ravel().tolist(), (name, key)
            else:
                np.testing.assert_allclose(np.array(found, float), expected[key].ravel(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def request_export(request):
    return lambda task: request.getfixturevalue(f"{task}_export")
