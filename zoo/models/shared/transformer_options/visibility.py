"""Options of the mask of self-attention: to which positions a position attends."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.errors import InputError
from zoo.models.shared.transformer_options.variants import WITH_VISIBILITY
from zoo.options import Options, choice, size

# What positions see in attention with weights of pairs, and the sizes that each of them has.
VISIBILITY_SIZES = {
    "full": (),
    "window": (),
    "dilated": ("dilation",),
    "global": ("global_tokens",),
    "block_sparse": ("block_size", "summary_tokens"),
    "top_blocks": ("block_size", "num_blocks"),
}
VISIBILITIES = tuple(VISIBILITY_SIZES)


@dataclass(frozen=True, kw_only=True)
class VisibilityOptions(Options):
    """Options of the mask of self-attention."""

    group: ClassVar[str] = "visibility"
    short_names: ClassVar[dict[str, str]] = {"kind": "visibility"}

    visibility: str = choice(
        "full",
        VISIBILITIES,
        f"Which positions self-attention sees, if it is {', '.join(WITH_VISIBILITY[:-1])} or {WITH_VISIBILITY[-1]}: "
        "all; window: those up to `window` away; dilated: every `dilation`-th one, `window` on each side; global: a "
        "window, and the first `global_tokens`, which see all (Longformer); block_sparse: those in its block, and the "
        "last `summary_tokens` of each block (Sparse Transformer); top_blocks: its block, and those of `num_blocks` in "
        "all that suit it best (MoBA). Language models and decoders keep no more of a window or of global than that: "
        "the first tokens are attention sinks there.",
    )
    window: int = size(
        8, "How far local attention and `visibility` see on each side; the size of a block of block_local attention."
    )
    dilation: int = size(2, "Step between the positions that dilated shows.")
    global_tokens: int = size(1, "How many of the first positions see all and are seen by all with global.")
    block_size: int = size(64, "Size of the blocks of block_sparse and top_blocks.")
    summary_tokens: int = size(8, "How many positions of each block all see with block_sparse.")
    num_blocks: int = size(4, "How many blocks a position sees with top_blocks, its own included.")

    def visible_to(self) -> dict[str, tuple[str, str]]:
        """Returns each kind of self-attention with its visibility, by the name of the option of the latter."""
        raise NotImplementedError(f"{type(self).__name__} must override `visible_to`.")

    def check(self) -> None:
        super().check()
        used = {name for _, visibility in self.visible_to().values() for name in VISIBILITY_SIZES[visibility]}
        for name, (kind, visibility) in self.visible_to().items():
            if visibility != "full" and kind not in WITH_VISIBILITY:
                raise InputError(
                    f"`{name}` must be full with {kind} self-attention, which says by itself what it sees. "
                    f"Received: {name}={visibility!r}."
                )
        for name in {each: None for sizes in VISIBILITY_SIZES.values() for each in sizes}:
            if name not in used and getattr(self, name) != type(self).declared()[name].default:
                wanted = " or ".join(each for each, sizes in VISIBILITY_SIZES.items() if name in sizes)
                raise InputError(f"`{name}` is for visibility={wanted}. Received: {name}={getattr(self, name)}.")
        if "summary_tokens" in used and self.summary_tokens > self.block_size:
            raise InputError(
                f"`summary_tokens` must be at most `block_size`, {self.block_size}. "
                f"Received: summary_tokens={self.summary_tokens}."
            )
