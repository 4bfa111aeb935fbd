"""Planted faults: rules of visibility."""

from tests.mutants.mutant import Mutant

RULES = ("tests/zoo/layers/visibility/test_rules.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "of two rules, one may depend on absolute positions",
        "zoo/layers/visibility/base.py",
        "self.first.is_relative and self.second.is_relative",
        "self.first.is_relative or self.second.is_relative",
        ("tests/zoo/models/shared/test_visibility_options.py::test_which_rows_rewind_by_different_counts",),
    ),
    Mutant(
        "a rule whose methods have their former names allows nothing",
        "zoo/layers/visibility/base.py",
        "setattr(cls, name, method)",
        "setattr(cls, name, getattr(cls, name))",
        RULES,
    ),
    Mutant(
        "a method that is called by its former name is that of the base class",
        "zoo/layers/visibility/base.py",
        "setattr(cls, former, method)",
        "pass",
        RULES,
    ),
    Mutant(
        "a dilated window leaves its phase to the query",
        "zoo/layers/visibility/windows.py",
        "ops.equal(steps % self.dilation, 0)",
        "ops.equal(pairs.key % self.dilation, 0)",
        RULES,
    ),
    Mutant(
        "a window skips a block that it touches",
        "zoo/layers/visibility/windows.py",
        "reached = blocks.key.last >= blocks.query.first - self.left",
        "reached = blocks.key.last > blocks.query.first - self.left",
        RULES,
    ),
    Mutant(
        "a window says of a block that it sees all of it, of which it sees a part",
        "zoo/layers/visibility/windows.py",
        "reached = blocks.key.first >= blocks.query.last - self.left",
        "reached = blocks.key.first >= blocks.query.first - self.left",
        RULES,
    ),
    Mutant(
        "a window without a right side has its left side there",
        "zoo/layers/visibility/windows.py",
        "left if right is None else right",
        "left if not right else right",
        RULES,
    ),
    Mutant(
        "global tokens are seen, but see no more than others",
        "zoo/layers/visibility/windows.py",
        "self._at_any(lambda p, x=x: ops.equal(x, p), x) for x in (pairs.query, pairs.key)",
        "self._at_any(lambda p, x=x: ops.equal(x, p), x) for x in (pairs.key, pairs.key)",
        RULES,
    ),
    Mutant(
        "rows and columns of a sparse pattern have changed places",
        "zoo/layers/visibility/blocks.py",
        "return self._allowed(rows, rows, columns, columns)",
        "return self._allowed(columns, columns, rows, rows)",
        RULES,
    ),
    Mutant(
        "a prefix ends one key late",
        "zoo/layers/visibility/sequences.py",
        'pairs.key < pairs.inputs["prefix_length"], pairs.key <= pairs.query',
        'pairs.key <= pairs.inputs["prefix_length"], pairs.key <= pairs.query',
        RULES,
    ),
    Mutant(
        "summaries are the first tokens of a block",
        "zoo/layers/visibility/blocks.py",
        "return positions % self.block_size >= self.block_size - self.count",
        "return positions % self.block_size < self.count",
        RULES,
    ),
    Mutant(
        "blocks are chosen that a query sees nothing of",
        "zoo/layers/visibility/blocks.py",
        'gates = ops.where(counts > 0, gates, -float("inf"))',
        "gates = gates + 0",
        RULES,
    ),
    Mutant(
        "a query may not choose its own block",
        "zoo/layers/visibility/blocks.py",
        'gates = ops.where(own, float("inf"), ',
        'gates = ops.where(own, -float("inf"), ',
        RULES,
    ),
    Mutant(
        "a rule that allows more keeps the bounds of its class",
        "zoo/layers/visibility/base.py",
        'if overridden_since(cls, ("allows",), name):',
        "if False:",
        (f"{RULES[0]}::test_a_subclass_that_allows_other_pairs_inherits_no_bounds",),
    ),
    Mutant(
        "either rule skips what one of them skips",
        "zoo/layers/visibility/base.py",
        "return self.combine(self.first.may_allow(blocks), self.second.may_allow(blocks))",
        "return ops.logical_and(self.first.may_allow(blocks), self.second.may_allow(blocks))",
        RULES,
    ),
    Mutant(
        "under a causal mask all of a prefix rule's future is hidden",
        "zoo/layers/visibility/sequences.py",
        "if not rule.replaces_causal:\n        return Causal() & rule",
        "if True:\n        return Causal() & rule",
        RULES,
    ),
]
