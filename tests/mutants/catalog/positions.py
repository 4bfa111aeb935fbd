"""Planted faults: positions."""

from tests.mutants.mutant import Mutant

FOLDER = "tests/zoo/layers/positions"
ABSOLUTE, RELATIVE = (f"{FOLDER}/test_absolute.py",), (f"{FOLDER}/test_relative.py",)
ROTARY, SCALING, XPOS = (f"{FOLDER}/test_rotary.py",), (f"{FOLDER}/test_scaling.py",), (f"{FOLDER}/test_xpos.py",)
GIVEN, BASE = (f"{FOLDER}/test_given.py",), (f"{FOLDER}/test_base.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "terms of positions have no cost",
        "zoo/row_selection.py",
        "isinstance(values, keras.KerasTensor) or isinstance(indices, keras.KerasTensor)",
        "isinstance(indices, keras.KerasTensor)",
        ("tests/zoo/inspection/test_cost.py::test_terms_of_positions",),
    ),
    Mutant(
        "all rotations of a graph have the cosines of its first layer",
        "zoo/layers/positions/rotary.py",
        "computed_once((self, size), ",
        "computed_once(size, ",
        ROTARY,
    ),
    Mutant(
        "rotations of other sizes have the cosines of the first size",
        "zoo/layers/positions/rotary.py",
        "computed_once((self, size), ",
        "computed_once(self, ",
        ROTARY,
    ),
    Mutant(
        "positions that act on scores are left out",
        "zoo/layers/attention/multi_head.py",
        "return self.positions is not None and self.positions.acts_on_scores",
        "return False",
        (f"{FOLDER}/test_base.py", *RELATIVE),
    ),
    Mutant(
        "sines and cosines have changed places",
        "zoo/layers/positions/absolute.py",
        "ops.stack([ops.sin(phases), ops.cos(phases)], axis=-1)",
        "ops.stack([ops.cos(phases), ops.sin(phases)], axis=-1)",
        ABSOLUTE,
    ),
    Mutant(
        "angles are worked out in half precision",
        "zoo/layers/positions/base.py",
        'return ops.cast(positions, "float32")[..., None] * rates',
        'return ops.cast(ops.cast(positions, "bfloat16"), "float32")[..., None] * rates',
        ABSOLUTE,
    ),
    Mutant(
        "behind its end a learned table begins anew",
        "zoo/layers/positions/absolute.py",
        "ops.clip(positions, 0, self.max_length - 1)",
        "positions % self.max_length",
        ABSOLUTE,
    ),
    Mutant(
        "rotations turn the other way",
        "zoo/layers/positions/rotary.py",
        "first * cos - second * sin, first * sin + second * cos",
        "first * cos + second * sin, second * cos - first * sin",
        ROTARY,
    ),
    Mutant(
        "half-split features are joined one by one",
        "zoo/layers/positions/rotary.py",
        'if self.layout == "half_split":\n            return ops.concatenate',
        'if self.layout == "halves":\n            return ops.concatenate',
        SCALING,
    ),
    Mutant(
        "scaled rotations have no temperature",
        "zoo/layers/positions/rotary.py",
        "return None if self._scaling is None else self._scaling.attention_scale",
        "return None",
        SCALING,
    ),
    Mutant(
        "the ramp of YaRN runs backwards",
        "zoo/layers/positions/scaling.py",
        "return [1 - _clip((pair - first) / (last - first)) for pair in range(size // 2)]",
        "return [_clip((pair - first) / (last - first)) for pair in range(size // 2)]",
        SCALING,
    ),
    Mutant(
        "NTK scaling has the exponent of its first publication",
        "zoo/layers/positions/scaling.py",
        "self.factor ** (size / (size - 2))",
        "self.factor",
        SCALING,
    ),
    Mutant(
        "extrapolatable keys grow as queries do",
        "zoo/layers/positions/rotary.py",
        "return self._rotate_and_scale(heads, start_index, -1.0)",
        "return self._rotate_and_scale(heads, start_index, 1.0)",
        XPOS,
    ),
    Mutant(
        "the slopes of other numbers of heads are those of a power of two",
        "zoo/layers/positions/relative.py",
        "slopes(2 * power, 2)[: num_heads - power]",
        "slopes(2 * power, 1)[: num_heads - power]",
        RELATIVE,
    ),
    Mutant(
        "linear biases are of keys behind the query alone",
        "zoo/layers/positions/relative.py",
        "ops.abs(",
        "ops.relu(",
        RELATIVE,
    ),
    Mutant(
        "relative vectors are clipped one step early",
        "zoo/layers/positions/relative.py",
        "ops.clip(steps, -self.max_distance, self.max_distance) + self.max_distance",
        "ops.clip(steps, 1 - self.max_distance, self.max_distance - 1) + self.max_distance",
        RELATIVE,
    ),
    Mutant(
        "products with relative vectors are not scaled",
        "zoo/layers/positions/relative.py",
        "query * query.shape[-1] ** -0.5, ops.transpose(embeddings)",
        "query, ops.transpose(embeddings)",
        RELATIVE,
    ),
    Mutant(
        "buckets of keys behind and before the query have changed places",
        "zoo/layers/positions/relative.py",
        "return (*reversed(before), *(side + bucket for bucket in before[1:]))",
        "return (*(side + bucket for bucket in reversed(before[1:])), *before)",
        RELATIVE,
    ),
    Mutant(
        "given positions of all rows are those of the first one",
        "zoo/layers/positions/rotary.py",
        "positions = positions if len(positions.shape) == 1 else positions[:, None]",
        "positions = positions if len(positions.shape) == 1 else positions[:1, None]",
        GIVEN,
    ),
    Mutant(
        "layers of other sizes share positions",
        "zoo/layers/positions/base.py",
        "elif dict(self.sizes) != sizes:",
        "elif len(self.sizes) != len(sizes):",
        BASE,
    ),
]
