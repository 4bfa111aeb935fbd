"""Ids and texts of our tokenizers beside those of other software, on the host and in the graph."""

from collections.abc import Sequence

from benchmarks.parity.measure import Comparison, Count, compare
from export.graph.tokenizers import tokenizer_graph
from zoo.vocabulary import pad

GRAPH_BATCH = 512


def compare_tokens(comparison: Comparison, lines: Sequence[str]) -> tuple[int, dict[str, Count]]:
    """Returns the number of ids, and how many lines have those of the reference and lead back to the same text."""
    vocabulary, read, written = comparison.reference.vocabulary, comparison.read, comparison.written
    reader, writer = comparison.run.tokenizers[0], comparison.run.tokenizers[-1]
    reading, writing = tokenizer_graph(reader), tokenizer_graph(writer)
    expected = vocabulary.encode(lines)
    rows = [[written.ours[i] for i in row] for row in expected]
    in_graph, back_in_graph = [], []
    for first in range(0, len(lines), GRAPH_BATCH):
        batch = slice(first, first + GRAPH_BATCH)
        in_graph += reading.encode([line.encode() for line in lines[batch]]).to_list()
        back_in_graph += [text.decode() for text in writing.decode(pad(rows[batch])).numpy()]
    texts = vocabulary.decode(expected)
    found = {"host": reader.encode(lines), "graph": in_graph}
    counts = {
        f"ids, {place}": compare(lines, [str(read.theirs(row)) for row in ours], list(map(str, expected)))
        for place, ours in found.items()
    }
    counts["text, host"] = compare(lines, writer.decode(rows), texts)
    counts["text, graph"] = compare(lines, back_in_graph, texts)
    return sum(map(len, expected)), counts
