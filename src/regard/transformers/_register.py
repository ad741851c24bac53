"""The one public call: transformers learns a name."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from regard._errors import UnsupportedError

from ._attend import attend
from ._hand_over import hand_over

# transformers reads these out of a name, wherever they stand in it, as ways of its own.
_TAKEN = ("flash", "sdpa", "flex", "eager", "paged")


def register(name: str = "regard") -> None:
    """Register regard with transformers, as an attention function and as a mask function, under a name.

    Models are then made with ``from_pretrained(..., attn_implementation="regard")``, or switched with
    ``model.set_attn_implementation("regard")``. Inference on the CPU only: models in training mode with dropout,
    tensors that require grad, and other devices are refused with a message. Calling it again changes nothing.

    Parameters
    ----------
    name
        An identifier that transformers has no use for.

    Raises
    ------
    UnsupportedError
        transformers 5.24 or newer, or torch, is not installed; or the name has a meaning in transformers already.

    Notes
    -----
    This function alone imports torch and transformers. Masks reach the attention function as a `regard.Mask`, never as
    an array of queries by keys; the guide "Use regard in transformers" says which rules it knows.

    Examples
    --------
    ``regard.transformers.register(); model.set_attn_implementation("regard")``
    """
    attention, masks = _interfaces()
    _check_name(name)
    ours = tuple(zip((attention, masks), _functions(), strict=True))
    if any(interface._global_mapping.get(name, function) is not function for interface, function in ours):
        raise UnsupportedError(
            f"transformers has an attention of the name {name!r} already, and models that use it would change: "
            "pass another name"
        )
    for interface, function in ours:
        interface.register(name, function)


def _interfaces() -> tuple[Any, Any]:
    try:
        import torch  # noqa: F401 (without it transformers has stand-ins for what it lacks)
        import transformers
    except ImportError as error:
        raise UnsupportedError(
            f"register() needs torch and transformers 5.24 or newer ({error}): pip install 'regard[transformers]'"
        ) from None
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
        raise UnsupportedError(
            f"register() needs transformers 5.24 or newer, whose mask functions have other arguments than those of "
            f"{transformers.__version__}: pip install -U 'regard[transformers]'"
        )
    return transformers.AttentionInterface, transformers.AttentionMaskInterface


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any]:
    """Return both functions, to be called and not traced by torch.compile: there are no torch operators in them."""
    import torch

    return torch.compiler.disable(attend), torch.compiler.disable(hand_over)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or any(word in name for word in _TAKEN):
        raise UnsupportedError(
            f"{name!r} cannot be the name: it must be an identifier without {', '.join(_TAKEN)}, which transformers "
            'reads as attentions of its own; pass one such as "regard"'
        )
