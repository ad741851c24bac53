"""A mask with its place: what transformers passes around as a tensor of queries by keys, without the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from regard.masks import Mask


@dataclass(frozen=True, eq=False)
class Laid:
    """A mask for scores of ``batch`` entries, ``queries`` and ``keys``; query 0 stands at key ``q_offset``."""

    mask: Mask
    q_offset: int
    batch: int
    queries: int
    keys: int

    def fits(self, scores: tuple[int, ...]) -> bool:
        """Whether it is for these; a rule of positions means something else where it is stretched."""
        return self.batch in (1, scores[0]) and (self.queries, self.keys) == scores[2:]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """As transformers has masks: ``(batch, 1, queries, keys)``."""
        return self.batch, 1, self.queries, self.keys


@lru_cache(maxsize=1)
def mask_tensor() -> Any:
    """Return the class of tensors that carry a `Laid`; made here because torch is imported on use only.

    Between its making and the attention function a mask passes through model code, ``generate`` and hooks, which ask
    for its shape, dtype and device, and move or slice it as the bool tensor that they expect. Such a tensor has these,
    and no elements. An operator that asks for elements gets all of them, as that bool tensor: from then on ``dense``
    is the mask, because whoever has it may write to it.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    class MaskTensor(torch.Tensor):  # type: ignore[misc]
        laid: Laid
        dense: Any

        @staticmethod
        def __new__(cls, laid: Laid) -> MaskTensor:
            made: MaskTensor = torch.Tensor._make_wrapper_subclass(cls, laid.shape, dtype=torch.bool, device="cpu")
            made.laid, made.dense = laid, None
            return made

        def __repr__(self) -> str:
            return f"MaskTensor({self.laid.mask!r}, q_offset={self.laid.q_offset}, shape={self.laid.shape})"

        def spelled(self) -> Any:
            """Return the bool tensor, the same at every call."""
            if self.dense is None:
                batch, _, queries, keys = self.laid.shape
                kept = self.laid.mask.materialize(queries, keys, q_offset=self.laid.q_offset, lead=(batch,), heads=1)
                self.dense = torch.from_numpy(kept)
            return self.dense

        @classmethod
        def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args, kwargs = tree_map_only(cls, cls.spelled, (args, kwargs or {}))
            return operator(*args, **kwargs)

    return MaskTensor
