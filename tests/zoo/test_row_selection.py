"""Rows of nested tensors."""

import keras
from keras import ops

from zoo.decoding import repeat_rows


def test_rows_are_repeated_in_place_and_scalars_left_alone():
    state = {"rows": ops.convert_to_tensor([[1, 2], [3, 4]]), "more": [ops.convert_to_tensor([True, False])]}
    state["index"] = ops.convert_to_tensor(5)
    repeated = keras.tree.map_structure(lambda x: ops.convert_to_numpy(x).tolist(), repeat_rows(state, 2))
    assert repeated == {"rows": [[1, 2], [1, 2], [3, 4], [3, 4]], "more": [[True, True, False, False]], "index": 5}
