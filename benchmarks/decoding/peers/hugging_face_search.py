"""Worker: `generate` of Hugging Face's Marian: `python hugging_face_search.py TASK`."""

import torch
from hugging_face import Translator
from searching import serve
from worker import PAD, Turns


def main():
    """Takes part."""
    turns = Turns()
    torch.set_num_threads(turns.task["threads"])
    torch.manual_seed(0)
    model = Translator(turns.task).eval().model
    # Without an end nothing is ruled out at each step, which would cost a pass over all logits.
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.config.eos_token_id = None

    @torch.inference_mode()
    def search(beam, source):
        source = torch.tensor(source, dtype=torch.long)
        steps = {"min_new_tokens": source.shape[1], "max_new_tokens": source.shape[1]}
        options = {"num_beams": beam, "do_sample": False, "use_cache": True, "length_penalty": 0.0, **steps}
        return model.generate(input_ids=source, attention_mask=(source != PAD).long(), **options)[:, 1:]

    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    serve(turns, search, parameters, ["transformers", "torch"], end=None)


if __name__ == "__main__":
    main()
