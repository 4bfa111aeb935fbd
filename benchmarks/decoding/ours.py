"""Worker: an exported model, loaded as a server does, answers the same texts at every line `BEAM` it is sent.

`python -m benchmarks.decoding.ours FOLDER_GREEDY FOLDER_BEAM SIGNATURE TEXTS.json THREADS THREADS_OF_AN_OPERATION`
"""

import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401, its ops are in the graph

from benchmarks.decoding.turns import serve


def load(folder, name, threads, within):
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=within, inter_op_parallelism_threads=threads)
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():
        model = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
    signature = model.signature_def[name]
    return session.make_callable([signature.outputs["text"].name], feed_list=[signature.inputs["text"].name])


def main():
    *folders, name, texts, threads, within = sys.argv[1:]
    texts = json.loads(open(texts, encoding="utf-8").read())
    ask = {beam: load(folder, name, int(threads), int(within)) for beam, folder in zip((1, 5), folders, strict=True)}
    serve(lambda beam: ask[beam](texts)[0], lambda answers: {"texts": [text.decode() for text in answers]})


if __name__ == "__main__":
    main()
