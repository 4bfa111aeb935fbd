"""Decoding with scripted logits: no model, and references that try everything."""

import itertools

import numpy as np
from keras import ops

from zoo.decoding import Constraints, SpecialIds, beam_search, greedy_search, repeat_rows

PAD, START, END = 0, 1, 2

TOKENS = SpecialIds(start=START, end=END, pad=PAD)


def constraints(limits, room=None, prompts=None, **options):
    """Returns the `Constraints` of rows with these limits and prompts."""
    room = max(limits) if room is None else room
    prompt = None
    if prompts is not None:
        prompt = ops.convert_to_tensor([padded(row, max(map(len, prompts))) for row in prompts], "int32")
    return Constraints(TOKENS, ops.convert_to_tensor(limits, "int32"), room, prompt, **options)


def scripts(seed, batch, vocabulary, length, scale=2.0):
    """Returns logits [batch, prefix, vocabulary] for every prefix of every row (see `prefix_code`)."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(scale=scale, size=(batch, 2 * vocabulary**length, vocabulary)).astype("float32")
    logits[:, :, [PAD, START]] += 3.0  # tempting, and forbidden
    return logits


def prefix_code(prefix, vocabulary):
    code = START
    for token in prefix:
        code = code * vocabulary + token
    return code


def stepper(table):
    """Returns a step function that reads its logits off `table`, and its first state."""
    batch, _, vocabulary = table.shape
    table = ops.convert_to_tensor(table)

    def step(last, state, memory=None):
        code = state["code"] * vocabulary + last
        logits = ops.take(ops.reshape(table, (-1, vocabulary)), state["row"] * table.shape[1] + code, axis=0)
        return logits, {"row": state["row"], "code": code, "count": state["count"] + 1}

    state = {
        "row": ops.arange(batch, dtype="int32"),
        "code": ops.zeros((batch,), "int32"),
        "count": ops.zeros((), "int32"),
    }
    return step, state


def log_probabilities(logits, uncounted=(PAD, START)):
    """Returns float64 log probabilities [V]; the tokens that are not counted have none."""
    logits = logits.astype("float64").copy()
    logits[list(uncounted)] = -np.inf
    return logits - np.log(np.exp(logits).sum())


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def score(table, ids):
    vocabulary = table.shape[-1]
    codes = [prefix_code(ids[:position], vocabulary) for position in range(len(ids))]
    return sum(log_probabilities(table[code])[token] for code, token in zip(codes, ids, strict=True))


def everything(table, limit, alpha):
    """Returns all sequences of one row with their log probability, best first by penalised score."""
    real = range(END + 1, table.shape[-1])
    found = [(*prefix, END) for length in range(limit) for prefix in itertools.product(real, repeat=length)]
    found += itertools.product(real, repeat=limit)  # cut off at the limit
    scored = [(score(table, ids), ids) for ids in found]
    return sorted(scored, key=lambda pair: pair[0] / penalty(len(pair[1]), alpha), reverse=True)


def plain_beam_search(table, limit, beam_size, alpha, beta=0.0, looks=None):
    """The same search with lists, without stopping early.

    With `looks` [V, S], the attention with which a token is read, endings rank by their coverage of the S as well.
    """
    live, done = [(0.0, ())], []

    def rank(pair):
        total, ids = pair
        coverage = 1.0 if looks is None else sum(looks[token] for token in (START, *ids[:-1]))
        return total / penalty(len(ids), alpha) + beta * np.log(np.clip(coverage, 1e-10, 1.0)).sum()

    for _ in range(limit):
        best = []
        for total, ids in live:
            steps = log_probabilities(table[prefix_code(ids, table.shape[-1])])
            best += [(total + steps[token], (*ids, token)) for token in range(END, table.shape[-1])]
        best = sorted(best, reverse=True)[: 2 * beam_size]
        done += [pair for pair in best if pair[1][-1] == END or len(pair[1]) == limit]
        done = sorted(done, key=rank, reverse=True)[:beam_size]
        live = [pair for pair in best if pair[1][-1] != END][:beam_size]
    return done


def beam_search_of_others(table, limit, beam_size, alpha, nbest, rules):
    """The same by the rules of CTranslate2, or of `transformers` with one of its three ways to stop."""
    vocabulary, by_ctranslate2 = table.shape[-1], rules == "ctranslate2"
    live, done, ended, best_ended = [(0.0, ())], [], 0, False

    def rank(pair):
        return pair[0] / len(pair[1]) ** alpha

    for length in range(1, limit + 1):
        best = []
        for total, ids in live:
            steps = log_probabilities(table[prefix_code(ids, vocabulary)], () if by_ctranslate2 else (START,))
            best += [(total + steps[token], (*ids, token)) for token in range(END, vocabulary)]
        best = sorted(best, reverse=True)[: 2 * beam_size]
        closed = [pair for pair in best[:beam_size] if pair[1][-1] == END or length == limit]
        done = sorted([*done, *closed], key=rank, reverse=True)[:beam_size]
        live = [pair for pair in best if pair[1][-1] != END][:beam_size]
        ended, best_ended = ended + len(closed), best_ended or best[0] in closed
        if by_ctranslate2:
            stops = ended >= beam_size if alpha else best_ended and ended >= nbest
        else:
            hoped = limit if rules == "huggingface_never" and alpha else length
            stops = rules == "huggingface_early" or rank(done[-1]) >= live[0][0] / hoped**alpha if done else False
            stops = stops and len(done) == beam_size
        if stops:
            break
    return done[:nbest]


def run_beam(table, limits, beam_size, alpha, resizes=None, prompts=None, nbest=None, **options):
    step, state = stepper(table)
    given, state = constraints(limits, prompts=prompts, **options), repeat_rows(state, beam_size)
    ids, log_probs = beam_search(step, state, given, beam_size, alpha, resizes=resizes, nbest=nbest)
    return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_probs)


def run_greedy(table, limits, room=None, resizes=None, prompts=None, **options):
    step, state = stepper(table)
    ids, log_probs = greedy_search(step, state, constraints(limits, room, prompts, **options), resizes=resizes)
    return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_probs)


def padded(ids, room):
    return [*ids, *[PAD] * (room - len(ids))]


def greedy_row(table, limit):
    ids = ()
    while len(ids) < limit and END not in ids:
        ids += (int(log_probabilities(table[prefix_code(ids, table.shape[-1])]).argmax()),)
    return ids
