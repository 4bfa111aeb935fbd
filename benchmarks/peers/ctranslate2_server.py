"""A minimal gRPC server of CTranslate2 that batches: `python -m benchmarks.peers.ctranslate2_server FOLDER PORT N`.

`export.convert --to ctranslate2:` writes FOLDER. N translators run with a thread each; an idle one translates all
waiting texts, up to `MAX_BATCH`. A request is a text in UTF-8, its response the translation.
"""

import json
import queue
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import ctranslate2
import grpc
import sentencepiece

SERVICE = "peer.Translator"
MAX_BATCH = 32
MAX_CLIENTS = 256


class Texts:
    """Translates texts with the model and the SentencePiece files of a folder."""

    def __init__(self, folder: Path, translators: int):
        self._translator = ctranslate2.Translator(str(folder), device="cpu", inter_threads=translators, intra_threads=1)
        self._source, self._target = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
            for side in ("source", "target")
        )
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._lowercase = config.get("lowercase", {}).get("source", False)

    def translate(self, texts: list[str]) -> list[str]:
        """Returns the translation of each text, by greedy search."""
        texts = [text.lower() for text in texts] if self._lowercase else texts
        pieces = self._source.encode(texts, out_type=str)
        results = self._translator.translate_batch(pieces, beam_size=1)
        return [self._target.decode(result.hypotheses[0]) for result in results]


class Batches:
    """Translates waiting texts together, in several threads."""

    def __init__(self, texts: Texts, threads: int):
        self._texts = texts
        self._waiting: queue.Queue = queue.Queue()
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def translate(self, text: str) -> str:
        """Returns the translation of a text."""
        translation: Future = Future()
        self._waiting.put((text, translation))
        return str(translation.result())

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < MAX_BATCH and not self._waiting.empty():
                try:
                    batch.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            translations = self._texts.translate([text for text, _ in batch])
            for (_, future), translation in zip(batch, translations, strict=True):
                future.set_result(translation)


def main() -> None:
    """Serves until the process is terminated."""
    folder, port, translators = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    batches = Batches(Texts(folder, translators), translators)
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: batches.translate(request.decode()).encode())
    server = grpc.server(ThreadPoolExecutor(MAX_CLIENTS))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Translate": handler})])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
