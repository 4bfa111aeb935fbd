"""Worker: Joey NMT's greedy and beam search: `python joey_nmt_search.py TASK`."""

import torch
from joey_nmt import SPECIAL, make_model, renaming
from joeynmt.search import beam_search, greedy
from searching import serve
from worker import Turns


def main():
    """Takes part."""
    turns = Turns()
    torch.set_num_threads(turns.task["threads"])
    torch.manual_seed(0)
    model, renamed = make_model(turns.task).eval(), renaming(turns.task)

    @torch.inference_mode()
    def search(beam, source):
        source = torch.tensor(renamed[source])
        mask = (source != SPECIAL["pad"])[:, None]
        memory, hidden, *_ = model(return_type="encode", src=source, src_length=mask.sum(dim=(1, 2)), src_mask=mask)
        steps = source.shape[1]
        options = {"max_output_length": steps, "min_output_length": steps, "encoder_output": memory}
        options |= {"model": model, "encoder_hidden": hidden, "src_mask": mask}
        if beam == 1:
            return greedy(**options)[0]
        return beam_search(beam_size=beam, alpha=0.0, **options)[0]

    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    serve(turns, search, parameters, ["joeynmt", "torch"], end=SPECIAL["eos"])


if __name__ == "__main__":
    main()
