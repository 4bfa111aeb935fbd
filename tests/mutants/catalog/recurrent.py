"""Planted faults: recurrent layers."""

from tests.mutants.mutant import Mutant

FOLDER = "tests/zoo/layers/recurrent"
CELLS = (f"{FOLDER}/test_cells.py::test_cells_in_the_recurrent_layer_and_step_by_step",)
LOOPS = (f"{FOLDER}/test_loops.py::test_layers_are_those_of_keras",)
DECODER = (f"{FOLDER}/test_attention_rnn.py::test_loops",)
ENCODER = (f"{FOLDER}/test_bidirectional_encoder.py::test_encoder",)

MUTANTS: list[Mutant] = [
    Mutant(
        "Bahdanau's cell reads the new state where the previous one is asked for",
        "zoo/layers/recurrent/bahdanau_cell.py",
        'readout = query if self.readout_state == "previous" else states[self.query_index]',
        "readout = states[self.query_index]",
        CELLS,
    ),
    Mutant(
        "the conditional cell attends with the state before its first cell",
        "zoo/layers/recurrent/conditional_cell.py",
        "context, weights = attend(intermediate)",
        "context, weights = attend(previous)",
        CELLS,
    ),
    Mutant(
        "the attentional vector has state and context in the other order",
        "zoo/layers/recurrent/luong_cell.py",
        "joined = ops.concatenate([context, query], axis=-1)",
        "joined = ops.concatenate([query, context], axis=-1)",
        CELLS,
    ),
    Mutant(
        "the cell is fed the attentional vector of nothing",
        "zoo/layers/recurrent/luong_cell.py",
        "inputs = ops.concatenate([inputs, fed], axis=-1)",
        "inputs = ops.concatenate([inputs, ops.zeros_like(fed)], axis=-1)",
        CELLS,
    ),
    Mutant(
        "the query is the state of the bottom cell",
        "zoo/layers/recurrent/base_cell.py",
        "return sum(len(state_sizes(cell)) for cell in self._inner_cells()[:-1])",
        "return 0",
        CELLS,
    ),
    Mutant(
        "coverage is that of the last step alone",
        "zoo/layers/recurrent/base_cell.py",
        "coverage = [] if coverage is None else [coverage + weights]",
        "coverage = [] if coverage is None else [weights]",
        CELLS,
    ),
    Mutant(
        "the loop forgets the memory's mask",
        "zoo/layers/recurrent/attention_rnn.py",
        "memory_mask=memory_mask,\n            training",
        "memory_mask=None,\n            training",
        DECODER,
    ),
    Mutant(
        "masked steps return the output before them",
        "zoo/layers/recurrent/attention_rnn.py",
        "zero_output_for_mask=True",
        "zero_output_for_mask=False",
        DECODER,
    ),
    Mutant(
        "masked steps of a row are not counted",
        "zoo/layers/recurrent/attention_rnn.py",
        "if mask is not None and self.cell.has_step_counter:",
        "if False:",
        (f"{FOLDER}/test_attention_rnn.py::test_masked_steps_count_in_every_row",),
    ),
    Mutant(
        "masked steps take the loop that knows no masks",
        "zoo/layers/recurrent/attention_rnn.py",
        "training and mask is None and bound_cell is _BoundCell and defers_weight_gradients()",
        "training and defers_weight_gradients()",
        (f"{FOLDER}/test_loops.py::test_masked_steps_of_decoders_take_the_loop_of_keras",),
    ),
    Mutant(
        "a loop of no steps returns the states of a step",
        "zoo/layers/recurrent/loops.py",
        "if inputs.shape[1] not in (0, None):\n        return outputs, states",
        "if True:\n        return outputs, states",
        DECODER,
    ),
    Mutant(
        "the states of both directions have changed places",
        "zoo/layers/recurrent/bidirectional_encoder.py",
        "forward, backward = final[: len(final) // 2], final[len(final) // 2 :]",
        "backward, forward = final[: len(final) // 2], final[len(final) // 2 :]",
        ENCODER,
    ),
    Mutant(
        "the way back starts afresh at the beginnings of segments",
        "zoo/layers/recurrent/bidirectional_encoder.py",
        "((layer.forward_layer, starts), (layer.backward_layer, ends))",
        "((layer.forward_layer, starts), (layer.backward_layer, starts))",
        ENCODER,
    ),
    Mutant(
        "a masked edge of a segment keeps the state of the next one",
        "zoo/layers/recurrent/bidirectional_encoder.py",
        "states = [state * is_inside for state in states]",
        "states = [ops.where(real, state * is_inside, state) for state in states]",
        ENCODER,
    ),
    Mutant(
        "update and reset gate have changed places",
        "zoo/layers/recurrent/loops.py",
        "candidate = ops.tanh(candidate + r * inner_candidate)",
        "candidate = ops.tanh(candidate + z * inner_candidate)",
        LOOPS,
    ),
    Mutant(
        "an LSTM returns its carry",
        "zoo/layers/recurrent/loops.py",
        "return [ops.sigmoid(output_gate) * ops.tanh(carry), carry]",
        "return [ops.sigmoid(output_gate) * carry, carry]",
        LOOPS,
    ),
    Mutant(
        "a masked step of training changes the state",
        "zoo/layers/recurrent/loops.py",
        "new_states = [ops.where(real, new, old) for new, old in zip(new_states, states, strict=True)]",
        "new_states = [ops.where(real, new, new) for new, old in zip(new_states, states, strict=True)]",
        LOOPS,
    ),
    Mutant(
        "in training a layer that goes backwards goes forwards",
        "zoo/layers/recurrent/loops.py",
        "ops.flip(tensor, axis=1) for tensor in inputs] if self.go_backwards else inputs",
        "ops.flip(tensor, axis=1) for tensor in inputs] if not self.return_sequences else inputs",
        LOOPS,
    ),
    Mutant(
        "a transition keeps what its gate should replace",
        "zoo/layers/recurrent/transitions.py",
        "return candidate + ops.sigmoid(z) * (state - candidate)",
        "return state + ops.sigmoid(z) * (candidate - state)",
        CELLS,
    ),
]
