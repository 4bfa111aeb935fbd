"""Prepared datasets of TFDS whose files are damaged."""

import re
import shutil
import struct

import pytest
import tensorflow_datasets as tfds
from support.prepared_tfds import prepare
from tensorboardX.crc32c import crc32c

from training.data import load_data
from training.data.formats.tfrecord import read_records
from zoo.errors import InputError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folders of a dataset of 50 and 5 examples, the first 50 in two files, by the format of the files."""
    labels = tfds.features.ClassLabel(names=["bad", "good"])
    features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": labels})
    rows = [{"text": f"text {i} é" + "!" * 9 * i, "label": i % 2} for i in range(50)]
    splits = {"train": rows, "test": rows[:5]}
    return {
        kind: prepare(tmp_path_factory.mktemp(kind), "reviews", features, splits, kind, num_shards=2)
        for kind in ("tfrecord", "array_record")
    }


@pytest.fixture(params=["tfrecord", "array_record"])
def folder(request, prepared, tmp_path):
    return shutil.copytree(prepared[request.param], tmp_path / "copy")


@pytest.fixture
def tfrecords(prepared, tmp_path):
    """The files of the test split as TFRecords."""
    return shards(shutil.copytree(prepared["tfrecord"], tmp_path / "copy"), "test")


def read(folder, split="train"):
    return load_data(f"tfds:{folder}").split(split)


def shards(folder, split="train"):
    return sorted(path for path in folder.iterdir() if f"-{split}." in path.name)


def test_damage_anywhere_is_noticed(folder, subtests):
    """A flipped bit, or a file that is cut off."""
    path = shards(folder)[0]
    whole = path.read_bytes()
    assert len(read(folder)) == 45
    for at in (0.1, 0.3, 0.5, 0.7, 0.9):
        with subtests.test(f"a bit at {at}"):
            content = bytearray(whole)
            content[int(at * min(len(content), 2000))] ^= 4  # array_record fills up to 64 KiB with what is not read
            path.write_bytes(content)
            with pytest.raises(InputError, match="damaged"):
                read(folder)
    for keep in (0, 0.3, 0.999):
        with subtests.test(f"cut off at {keep}"):
            path.write_bytes(whole[: int(keep * len(whole))])
            with pytest.raises(InputError, match="damaged"):
                read(folder)


def test_every_byte_of_a_file_counts(tfrecords):
    path = tfrecords[0]
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match=f"{re.escape(str(path))}: .* damaged"):
            list(read_records(path))


def test_a_file_that_ends_between_two_records(tfrecords):
    path = tfrecords[0]
    records, content = list(read_records(path)), path.read_bytes()
    path.write_bytes(content[: -len(records[-1]) - 16])
    message = f"{re.escape(str(path))}: {len(records) - 1} .*dataset_info.json.* {len(records)}"
    with pytest.raises(InputError, match=message):
        read(path.parent, "test")
    path.write_bytes(content * 2)
    with pytest.raises(InputError, match=f"{2 * len(records)} .*dataset_info.json.* {len(records)}"):
        read(path.parent, "test")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="0 .*dataset_info.json"):
        read(path.parent, "test")


RECORDS = (
    (b"\xff" * 20, "ends within"),
    (bytes(5), "ends within"),
    (bytes(16), "record 0 .*checksum"),
    (b"no example", "record 0 .*example"),
    (b"", "record 0 .*example"),
)


def test_what_is_no_record(tfrecords, subtests):
    for content, message in RECORDS:
        with subtests.test(f"{content!r}"):
            if "example" in message:
                head = struct.pack("<Q", len(content))
                crcs = [struct.pack("<I", _reference(part)) for part in (head, content)]
                content = head + crcs[0] + content + crcs[1]
            tfrecords[0].write_bytes(content)
            with pytest.raises(InputError, match=f"{re.escape(str(tfrecords[0]))}: .*{message}"):
                read(tfrecords[0].parent, "test")


def test_files_that_are_missing(tfrecords, capsys):
    tfrecords[0].unlink()
    with pytest.raises(InputError, match=re.escape(str(tfrecords[0]))):
        read(tfrecords[0].parent, "test")
    assert capsys.readouterr().err == ""  # nothing is downloaded in place of a folder, whatever its name


def test_damaged_metadata(tfrecords):
    folder = tfrecords[0].parent
    for name in ("features.json", "dataset_info.json"):
        whole = (folder / name).read_text()
        for content in ('{"pythonClassName": "tensorflow_datasets.core.features.FeaturesDict"}', "{", "{}", ""):
            (folder / name).write_text(content)
            with pytest.raises(InputError, match=re.escape(str(folder))):
                load_data(f"tfds:{folder}")
        (folder / name).write_text(whole)


def _reference(record: bytes) -> int:
    crc = crc32c(record)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
