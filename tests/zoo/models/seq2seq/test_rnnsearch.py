"""How many files one reads to understand rnnsearch: six, besides shared machinery."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import zoo

ROOT = Path(zoo.__file__).parent
TO_READ = {
    "models/catalog/recurrent.py",  # its options and sizes
    "models/seq2seq/rnnsearch.py",  # the architecture
    "models/seq2seq/recurrent_base.py",  # embeddings, cells, start states and logits
    "layers/recurrent/bahdanau_cell.py",  # one step of the decoder
    "layers/attention/description.py",  # from scores to the weighted sum
    "layers/scores/additive.py",  # the score
}
# Files, or rooms that end in a slash: what they do can be told from their names.
MACHINERY = (
    "registry.py",
    "options.py",
    "row_selection.py",
    "models/shared/",
    "models/seq2seq/base.py",  # encodes, then decodes
    "layers/core/",
    "layers/attention/base.py",  # the arguments that all attention layers take
    "layers/execution/",
    "layers/visibility/visibility.py",  # masks
    "layers/normalizations/",  # the softmax
    "layers/attention/single_head.py",  # additive attention is attention with the additive score
    "layers/recurrent/",  # the loop over the steps, and what cells of both orders have in common
    "layers/scores/base.py",
    "layers/scores/by_name.py",
    "layers/blocks/maxout.py",
)


@pytest.fixture
def executed():
    """The functions of the package that run, by file, as long as the test does."""
    functions, root = {}, f"{ROOT.as_posix()}/"

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_flags & inspect.CO_OPTIMIZED:
            functions.setdefault(code.co_filename.removeprefix(root), set()).add(code.co_name)

    before = sys.getprofile()
    zoo.get_spec("rnnsearch").load_class()
    sys.setprofile(note)
    yield functions
    sys.setprofile(before)


def test_six_files_explain_it(executed):
    sizes = {"embedding_dim": 4, "units": 6, "attention_units": 5, "readout_units": 3}
    model = zoo.create_model("rnnsearch", source_vocab_size=13, target_vocab_size=17, **sizes)
    source, target = np.array([[4, 5, 2]], "int32"), np.array([[1, 4]], "int32")
    model({"source": source, "target": target})
    memory = model.encode(source)
    model.decode_step(target[:, 0], model.initial_state(memory), memory)
    sys.setprofile(None)
    assert set(executed) >= TO_READ
    assert not [file for file in set(executed) - TO_READ if not file.startswith(MACHINERY)]
