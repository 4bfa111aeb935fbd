"""How the checks look at a layer: masks for it, which inputs change which outputs, and comparisons of results.

What begins with `require` raises `Broken` with what happened.
"""

import math

import numpy as np
import tensorflow as tf

from benchmarks.conformance.subjects import BATCH, KEYS, MASKS, QUERIES, random_array

FLOAT32 = 1e-5  # of the largest number of a result
REFUSALS = (TypeError, ValueError, tf.errors.InvalidArgumentError)  # of an argument, by Keras and by TensorFlow


class Broken(Exception):
    """What a layer did that it should not have done."""


def require(condition, problem):
    if not condition:
        raise Broken(problem)


def require_none(problems):
    require(not problems, "; ".join(problems))


def require_close(found, expected, problem="off by", tolerance=FLOAT32):
    distance = relative_distance(found, expected)
    require(distance < tolerance, f"{problem} {distance:.2g}")


def relative_distance(first, second):
    """Returns the largest difference of two arrays, in parts of the largest number; or infinity."""
    difference = np.abs(np.asarray(first, "float64") - np.asarray(second, "float64"))
    if first.shape != second.shape or not np.all(np.isfinite(difference)):
        return math.inf
    return float(difference.max() / max(1.0, np.abs(second).max()))


def query_and_key_length(subject):
    return (KEYS if subject.is_self_attention else QUERIES), KEYS


def random_mask(subject, role, seed=0):
    """Returns a random mask that leaves every query the first key and hides another one."""
    length, keys = query_and_key_length(subject)
    shape = {"query_mask": (BATCH, length), "attention_mask": (BATCH, length, keys)}.get(role, (BATCH, keys))
    mask = np.random.default_rng([seed, MASKS.index(role)]).random(shape) < 0.6
    mask[..., 0], mask[..., -1] = True, False
    return mask


def offered_roles(subject, *roles):
    """Returns those of the arguments that the layer has; there must be one."""
    offered = [role for role in roles if subject.offers(role)]
    if not offered:
        subject.argument(roles[0])
    return offered


def hide_keys(subject, mask):
    """Returns the arguments that hide the keys where `mask` [B, S] is False, by whatever argument the layer has."""
    if offered_roles(subject, "value_mask", "attention_mask")[0] == "value_mask":
        return {"value_mask": mask}
    return {"attention_mask": np.repeat(mask[:, None], query_and_key_length(subject)[0], axis=1)}


def influence(subject, layer, inputs, targets, **options):
    """Returns, as boolean [B, T, S], the outputs t that change with position s of some of the inputs."""
    before, _ = subject.run(layer, inputs, **options)
    seen = []
    for place in range(inputs[targets[0]].shape[1]):
        changed = {name: value.copy() for name, value in inputs.items()}
        for name in targets:
            changed[name][:, place] = random_array(changed[name][:, place].shape, [place, 83])
        after, _ = subject.run(layer, changed, **options)
        seen.append(np.any(after != before, axis=-1))
    return np.stack(seen, axis=-1)


def require_sight(subject, seen, allowed, real=None):
    """Checks that every query, of those at `real` [B, T], saw what it may see, and nothing else."""
    wrong = seen != np.broadcast_to(allowed, seen.shape)
    if real is not None:
        wrong = wrong & real[:, :, None]
    if subject.is_self_attention:  # a query changes itself
        wrong = wrong & ~np.eye(seen.shape[1], seen.shape[2], dtype=bool)
    for b, t, s in np.argwhere(wrong)[:1]:
        verb = "saw" if seen[b, t, s] else "did not see"
        raise Broken(
            f"query {t} of {seen.shape[1]} {verb} key {s} of {seen.shape[2]} ({wrong.sum()} of {wrong.size} are wrong)"
        )


def reading_of_float_mask(subject, layer, role):
    """Returns what a layer makes of a mask of 0 and −1e9, or `None` where it refuses it."""
    inputs, mask = subject.inputs(), random_mask(subject, role)
    try:
        output, _ = subject.run(layer, inputs, **{role: np.where(mask, 0.0, -1e9).astype("float32")})
    except REFUSALS:
        return None
    readings = {"ignored": {}, "read as boolean and so inverted": {role: ~mask}}
    readings["accepted and read as additive"] = {role: mask}
    for text, masks in readings.items():
        if relative_distance(output, subject.run(layer, inputs, **masks)[0]) < FLOAT32:
            return text
    return "accepted"
