"""Tools of the checks: masks, the influence of inputs on outputs, and comparisons of results.

Functions whose names begin with `require` raise `Broken` with a description.
"""

import math

import numpy as np
import tensorflow as tf

from benchmarks.conformance.subjects import BATCH, KEYS, MASKS, QUERIES, random_array

FLOAT32 = 1e-5  # of the largest number of a result
REFUSALS = (TypeError, ValueError, tf.errors.InvalidArgumentError)  # of an argument, by Keras and by TensorFlow


class Broken(Exception):
    """A layer breaks the contract."""


def require(condition, problem):
    if not condition:
        raise Broken(problem)


def require_none(problems):
    require(not problems, "; ".join(problems))


def require_close(actual, expected, problem="off by", tolerance=FLOAT32):
    distance = relative_distance(actual, expected)
    require(distance < tolerance, f"{problem} {distance:.2g}")


def relative_distance(first, second):
    """Returns the largest difference of two arrays, relative to the largest number; or infinity."""
    difference = np.abs(np.asarray(first, "float64") - np.asarray(second, "float64"))
    if first.shape != second.shape or not np.all(np.isfinite(difference)):
        return math.inf
    return float(difference.max() / max(1.0, np.abs(second).max()))


def query_and_key_length(subject):
    return (KEYS if subject.is_self_attention else QUERIES), KEYS


def random_mask(subject, role, seed=0):
    """Returns a random mask that is True for the first key and False for the last one."""
    length, keys = query_and_key_length(subject)
    shape = {"query_mask": (BATCH, length), "attention_mask": (BATCH, length, keys)}.get(role, (BATCH, keys))
    mask = np.random.default_rng([seed, MASKS.index(role)]).random(shape) < 0.6
    mask[..., 0], mask[..., -1] = True, False
    return mask


def offered_roles(subject, *roles):
    """Returns the arguments of `roles` that the layer has; raises `NotApplicable` without any."""
    offered = [role for role in roles if subject.offers(role)]
    if not offered:
        subject.argument(roles[0])
    return offered


def hide_keys(subject, mask):
    """Returns the arguments that mask keys where `mask` [B, S] is False, by any argument that the layer has."""
    if offered_roles(subject, "value_mask", "attention_mask")[0] == "value_mask":
        return {"value_mask": mask}
    return {"attention_mask": np.repeat(mask[:, None], query_and_key_length(subject)[0], axis=1)}


def influence(subject, layer, inputs, targets, **options):
    """Returns whether output t changes with position s of the inputs `targets`, as boolean [B, T, S]."""
    before, _ = subject.run(layer, inputs, **options)
    columns = []
    for position in range(inputs[targets[0]].shape[1]):
        other = {name: value.copy() for name, value in inputs.items()}
        for name in targets:
            other[name][:, position] = random_array(other[name][:, position].shape, [position, 83])
        after, _ = subject.run(layer, other, **options)
        columns.append(np.any(after != before, axis=-1))
    return np.stack(columns, axis=-1)


def require_influence(subject, changed, allowed, real=None):
    """Checks that `changed` [B, T, S] equals `allowed`, for queries where `real` [B, T] is True."""
    wrong = changed != np.broadcast_to(allowed, changed.shape)
    if real is not None:
        wrong = wrong & real[:, :, None]
    if subject.is_self_attention:  # a query changes itself
        wrong = wrong & ~np.eye(changed.shape[1], changed.shape[2], dtype=bool)
    _, queries, keys = changed.shape
    for b, t, s in np.argwhere(wrong)[:1]:
        verb = "attends" if changed[b, t, s] else "does not attend"
        raise Broken(f"query {t} of {queries} {verb} to key {s} of {keys} ({wrong.sum()} of {wrong.size} are wrong)")


def reading_of_float_mask(subject, layer, role):
    """Returns how a layer interprets a mask of 0 and −1e9, or `None` if it refuses it."""
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
