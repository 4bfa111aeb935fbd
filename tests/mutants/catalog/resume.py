"""Planted faults: resume."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "the step of the schedule is not in a checkpoint",
        "training/loop/checkpoints.py",
        "enumerate(model.optimizer.variables)}",
        "enumerate(model.optimizer.variables[1:])}",
        ("tests/training/loop/test_checkpoints.py",),
    ),
    Mutant(
        "the second moments of the optimizer begin anew",
        "training/loop/checkpoints.py",
        "variable.assign(arrays[name])",
        'variable.assign(arrays[name] * (0 if "velocity" in variable.path else 1))',
        ("tests/training/loop/test_checkpoints.py",),
    ),
    Mutant(
        "the states of random generators begin anew",
        "training/loop/checkpoints.py",
        "of_model = [variable for variable in model.variables if",
        "of_model = [variable for variable in model.trainable_variables if",
        ("tests/training/loop/test_checkpoints.py",),
    ),
    Mutant(
        "a mean over checkpoints ignores the moving averages",
        "training/loop/checkpoints.py",
        "averages_of(model) or model.trainable_variables]",
        "model.trainable_variables or averages_of(model)]",
        ("tests/training/loop/test_damaged.py::test_what_does_not_matter",),
    ),
    Mutant(
        "the weights kept are the mean of the first checkpoints",
        "training/loop/trainer.py",
        "checkpoints[-settings.average_checkpoints :]",
        "checkpoints[: settings.average_checkpoints]",
        ("tests/training/loop/test_trainer.py",),
    ),
    Mutant(
        "the mean of checkpoints is kept though the best validates better",
        "training/loop/trainer.py",
        'metrics["cross_entropy"] > state.best',
        'metrics["cross_entropy"] < state.best',
        ("tests/training/loop/test_trainer.py",),
    ),
    Mutant(
        "a resumed round begins with its first batch",
        "training/data/batching.py",
        "step = self.round * (len(self) + self.skip) + self.skip + index",
        "step = self.round * (len(self) + self.skip) + index",
        ("tests/training/data/test_batching.py",),
    ),
    Mutant(
        "what an unfinished round has counted is lost",
        "training/loop/callbacks.py",
        "self.state.counted = [whole(variable).tolist() for variable in self.model.metrics_variables]",
        "self.state.counted = []",
        ("tests/training/loop/test_failures.py::test_a_run_that_ends_early_goes_on[interrupt]",),
    ),
    Mutant(
        "an equally good round counts as better",
        "training/loop/callbacks.py",
        "if loss < state.best:",
        "if loss <= state.best:",
        ("tests/training/loop/test_callbacks.py",),
    ),
    Mutant(
        "patience ends a round late",
        "training/loop/state.py",
        "self.rounds - self.best_round >= patience",
        "self.rounds - self.best_round > patience",
        ("tests/training/loop/test_callbacks.py",),
    ),
    Mutant(
        "the best checkpoint is removed",
        "training/loop/callbacks.py",
        "if path not in (best, *of_rounds[-self.keep :])",
        "if path not in of_rounds[-self.keep :]",
        ("tests/training/loop/test_callbacks.py",),
    ),
    Mutant(
        "the final line stays in the log of a run that goes on",
        "training/loop/state.py",
        'and not record.get("final")]',
        "]",
        ("tests/training/loop/test_state.py",),
    ),
    Mutant(
        "the steps of a round may change in a resumed run",
        "training/config/resume.py",
        '_FIXED = {"eval_every", "accumulate_steps",',
        '_FIXED = {"accumulate_steps",',
        ("tests/training/config/test_resume.py",),
    ),
]
