"""Datasets of TFDS, as if they were prepared."""

from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds


def prepare(
    parent: Path,
    name: str,
    features: Any,
    splits: dict[str, list[dict]],
    file_format: str = "tfrecord",
    num_shards: int = 1,
) -> Path:
    """Prepares a dataset of these examples and returns its folder."""
    builder = tfds.dataset_builders.store_as_tfds_dataset(
        name,
        "1.0.0",
        features,
        {split: list(enumerate(examples)) for split, examples in splits.items()},
        data_dir=parent,
        file_format=file_format,
        download_config=tfds.download.DownloadConfig(num_shards=num_shards),
        disable_shuffling=True,
    )
    return Path(builder.data_dir)


def write_metadata(folder: Path, name: str, sizes: dict[str, int]) -> None:
    """Writes what TFDS knows of a prepared dataset."""
    builder = tfds.builder(name, data_dir=folder)
    template = tfds.core.ShardedFileTemplate(
        data_dir=builder.data_path, dataset_name=builder.name, filetype_suffix="array_record"
    )
    infos = [
        tfds.core.SplitInfo(
            name=split, shard_lengths=[size], num_bytes=1, filename_template=template.replace(split=split)
        )
        for split, size in sizes.items()
    ]
    builder.info.set_splits(tfds.core.SplitDict(infos))
    builder.info.set_file_format("array_record", override=True)
    Path(builder.data_dir).mkdir(parents=True)
    builder.info.write_to_directory(builder.data_dir)
