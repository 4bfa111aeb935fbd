"""Language modelling: plain text."""

import math

from training.data.batching import DocumentBatches, WindowBatches
from training.tasks.task import Task, cut
from zoo.text import END


class LanguageModelTask(Task):
    """Goes on with a text, symbol by symbol.

    The lines of a running text become one stream of symbols: by characters with the line break as one of them, else
    with the end symbol behind each line. Separate texts stay apart.
    """

    name = "language_model"
    unit = "texts"

    def make_tokenizers(self, settings, data):
        texts = data.split("train").texts
        learn = self.learner(settings, data)
        return {"text": learn(["\n".join(texts) + "\n"] if self._one_text(settings, data) else texts)}

    @staticmethod
    def _one_text(settings, data):
        return data.joined and settings.tokenizer == "chars"

    def complete(self, config, data, tokenizers):
        config.model["vocab_size"] = tokenizers["text"].vocab_size
        if config.model["max_length"] is None:
            config.model["max_length"] = config.data.max_length + 1

    def batches(self, config, data, split, tokenizers, **options):
        texts, encode = data.split(split).texts, tokenizers["text"].encode
        if not data.joined:
            return DocumentBatches(self._rows(encode(texts), config.data.max_length, split), **options)
        options.pop("static_shapes")  # windows are alike
        if self._one_text(config.data, data):
            (stream,) = encode(["\n".join(texts) + "\n"])
        else:
            stream = [symbol for row in encode(texts) for symbol in (*row, END)]
        return WindowBatches(stream, config.data.max_length, **options)

    @staticmethod
    def _rows(texts, limit, split):
        """Returns the rows of separate texts: their beginnings in training, else all of them, in parts if long."""
        if split == "train":
            (texts,) = cut([texts], limit - 1, "texts of the train split")
        whole = [[*text, END] for text in texts]
        return [text[first : first + limit] for text in whole for first in range(0, len(text), limit)]

    def evaluate(self, run, data, split, **options):
        """Returns nothing of its own beside the cross-entropy, but for texts with a prompt: how many end as they do."""
        texts = data.split(split).texts
        if not data.prompt_end:
            return {}, []
        prompts, endings = [], []
        for text in texts:
            prompt, mark, ending = text.partition(data.prompt_end)
            prompts.append(prompt + mark)
            endings.append(ending)
        answers = run.generate(prompts, **options)
        equal = sum(answer == ending for answer, ending in zip(answers, endings, strict=True))
        return {"exact_match": equal / len(texts)}, [p + a for p, a in zip(prompts, answers, strict=True)]

    def derived(self, cross_entropy, symbols, examples):
        """Returns the perplexity and, in a unit that does not depend on the tokenizer, bits per character."""
        characters = sum(len(text) + 1 for text in examples.texts)  # the line break or the end counts
        bits = cross_entropy / math.log(2) * symbols / characters
        return {**super().derived(cross_entropy, symbols, examples), "bits_per_character": bits}
