"""`check` says which of the known faults an attention function has.

One direction: cases and the oracle; faults and probes; the candidate and how it is called; three instruments
(dictionary, tomography, laws) and behaviour; findings and the report. All of it is loaded by the first call: `import
regard` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._finding import Example as Example
    from ._finding import Finding as Finding
    from ._report import Report as Report

_TYPES = {"Example": "_finding", "Finding": "_finding", "Report": "_report"}


def __getattr__(name: str) -> Any:
    """Load the types of results when they are asked for."""
    if name not in _TYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_TYPES[name]}"), name)


def check(
    fn: Callable[..., Any],
    *,
    layout: str | None = None,
    mask: str | None = None,
    causal: str | None = None,
    window: str | None = None,
    empty_row: str = "zero",
    supports: Iterable[str] | None = None,
    expected: Mapping[str, str] | None = None,
    strict: bool = False,
    library: str | None = None,
    dtype: str = "float32",
    seed: int = 0,
    budget_s: float = 60.0,
    progress: Callable[[str, float], None] | None = None,
) -> Report:
    r"""Find out which known faults an attention function has.

    The function is called with small arrays whose right answers are known in float64, and whose wrong answers are
    known too: those of each fault in the catalogue. A fault that explains every answer has been found by name. Besides,
    hidden quantities are measured (the scale, row sums, which pairs are kept), laws are tried that need no right
    answer, and behaviour is watched: what happens to inputs, between calls, at odd sizes.

    Parameters
    ----------
    fn : callable
        ``fn(query, key, value)`` on NumPy arrays, with options as far as it has parameters for them: mask, causal,
        scale, bias, softcap, window, dropout, under their usual names. Or a layer ``fn(x, wq, wk, wv, wo, heads)``.
    layout : str, optional
        ``"bhsd"``, ``"bshd"``, ``"hsd"``, ``"shd"`` or ``"sd"`` (batch, head, position, feature). Default: guessed.
    mask : str, optional
        What a mask means: ``"keep"`` (True may attend), ``"drop"`` (True is hidden) or ``"additive"`` (0 and −inf).
        Default: guessed.
    causal : str, optional
        Which rule is right for more keys than queries: ``"bottom-right"`` (default) or ``"top-left"``.
    window : str, optional
        ``"total"`` (default): a window of W is W keys, the query's own included. ``"left-inclusive"``: W beside it.
    empty_row : str, optional
        What is right for a row that may attend nowhere: ``"zero"`` (default), ``"nan"`` or ``"any"``.
    supports : iterable of str, optional
        The options to ask about, of those named above and ``"gqa"``. Default: those that have a parameter and answer.
        ``{"causal"}`` for a function without such a parameter says that it is always causal.
    expected : mapping of str to str, optional
        Findings that are known, and why they are as they are: they do not fail.
    strict : bool, optional
        Let warnings fail too, and an expected finding that is not there.
    library : str, optional
        Whose arrays are passed: ``"numpy"``, ``"torch"`` or ``"jax"``. Default: guessed, NumPy's first.
    dtype : str, optional
        Of the arrays that are passed: float32, float64, float16 or bfloat16.
    seed : int, optional
        Of the random numbers in the probes.
    budget_s : float, optional
        Seconds after which no further question is begun. NumPy's and torch's functions need less than one as a rule,
        JAX's some ten: it compiles for each shape.
    progress : callable, optional
        Called with what is being asked, and the share of all questions that is behind, from 0 to 1.

    Returns
    -------
    Report
        ``.ok``, ``.findings``, ``.guessed``, ``.table()``, ``.json()``; printing it shows everything.

    Raises
    ------
    ValueError
        For a layout, rule, option or dtype that is not one of those above.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> def attention(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2)
    ...     e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> report = rg.check(attention)
    >>> report.ok, report.names[0]
    (False, 'SCALE_MISSING')
    >>> rg.check(rg.attention).names
    ()
    """
    from ._case import numpy_dtype
    from ._guess import Declared
    from ._probes import Setting
    from ._run import run

    _refuse_unknown(mask=mask, causal=causal, window=window, empty_row=empty_row)
    numpy_dtype(dtype)
    supports = None if supports is None else frozenset(supports)
    _refuse_unknown_options(supports)
    declared = Declared(layout, mask, causal, window, supports, library)
    setting = Setting(seed, dtype, False, causal == "top-left", empty_row)
    return run(fn, declared, setting, expected or {}, strict, budget_s, progress)


def _refuse_unknown(**given: str | None) -> None:
    known = {
        "mask": ("keep", "drop", "additive"),
        "causal": ("bottom-right", "top-left"),
        "window": ("total", "left-inclusive"),
        "empty_row": ("zero", "nan", "any"),
    }
    for name, value in given.items():
        if value is not None and value not in known[name]:
            raise ValueError(f"{name} is {value!r}; check knows {', '.join(known[name])}: declare one, or leave it out")


def _refuse_unknown_options(supports: frozenset[str] | None) -> None:
    known = ("mask", "causal", "scale", "bias", "softcap", "window", "dropout", "gqa")
    for option in sorted(supports or ()):
        if option not in known:
            raise ValueError(f"supports has {option!r}; check asks about {', '.join(known)}: take it out")
