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
    from .apart._apart import Apart as Apart
    from .apart._apart import Printed as Printed
    from .apart._apart import check_apart as check_apart
    from .findings._finding import Example as Example
    from .findings._finding import Finding as Finding
    from .report._names import Entry as Entry
    from .report._names import entries as entries
    from .report._report import Report as Report

_LATER = {
    **dict.fromkeys(("Apart", "Printed", "check_apart"), "apart._apart"),
    **dict.fromkeys(("Example", "Finding"), "findings._finding"),
    **dict.fromkeys(("Entry", "entries"), "report._names"),
    "Report": "report._report",
}


def __getattr__(name: str) -> Any:
    """Load what few callers need when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


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
    memory: str | None = None,
    vjp: Callable[..., Any] | None = None,
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
        ``fn(query, key, value)`` on arrays of NumPy, torch or JAX, with options as far as it has parameters for them:
        mask, causal, scale, bias, alibi (slopes), softcap, window, dropout, under their usual names. Or a layer
        ``fn(x, wq, wk, wv, wo, heads)``, or a torch module with projections; mask and causal are asked about there.
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
        The options to ask about, of those named above, ``"gqa"`` and ``"gradients"``. Default: those that have a
        parameter and answer, and the gradients of torch's and JAX's functions.
        ``{"causal"}`` for a function without such a parameter says that it is always causal, ``{"alibi"}`` that it
        always adds the linear biases of the ALiBi paper.
    expected : mapping of str to str, optional
        Findings that are known, and why they are as they are: they do not fail.
    strict : bool, optional
        Let warnings fail too, and an expected finding that is not there.
    library : str, optional
        Whose arrays are passed: ``"numpy"``, ``"torch"`` or ``"jax"``. Default: guessed, NumPy's first.
    vjp : callable, optional
        The function's way back, ``vjp(grad_out, query, key, value, **options)``, called with what the function itself
        is called with. It returns the gradients of the operands in the same order, that of a bias after them, or a
        mapping by name; of a layer those of x and its matrices. Default: the attribute ``fn.vjp``, if there is one;
        gradients of torch's and JAX's functions are their library's. They are asked for where the output is right: a
        wrong output has other gradients.
    memory : str, optional
        ``"linear"``: memory may not grow with queries times keys. Default: what NumPy takes is told, and is no fault.
    dtype : str, optional
        Of the arrays that are passed: float32, float64, float16 or bfloat16.
    seed : int, optional
        Of the random numbers in the probes.
    budget_s : float, optional
        Seconds after which no further question is begun; ten times as many for JAX, which compiles for each shape.
    progress : callable, optional
        Called with what is being asked, and the share of all questions that is behind, from 0 to 1.

    Returns
    -------
    Report
        ``.ok``, ``.findings``, ``.guessed``, ``.table()``, ``.json()``; printing it shows everything.

    Raises
    ------
    ValueError
        For a layout, rule, option, dtype or name that is not one of those above.
    TypeError
        For what is no function, and for an expected finding without a reason in words.
    UnsupportedError
        For a torch module whose matrices are not found, or whose number of heads.

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
    from . import _options
    from ._run import run
    from .answers._probes import Setting
    from .candidate._guess import Declared

    fn = _options.as_function(fn)
    words = {"mask": mask, "causal": causal, "window": window, "memory": memory}
    mask, causal, window, memory = (_options.as_word(name, value) for name, value in words.items())
    empty_row = _options.as_word("empty_row", empty_row, optional=False)
    dtype = _options.as_word("dtype", dtype, optional=False)
    way_back = _options.as_vjp(vjp)
    declared = Declared(layout, mask, causal, window, _options.as_supports(supports), library, memory, way_back)
    setting = Setting(_options.as_seed(seed), dtype, False, causal == "top-left", empty_row)
    reasons, budget = _options.as_expected(expected), _options.as_budget(budget_s)
    return run(fn, declared, setting, reasons, bool(strict), budget, progress)


def parametrize(fn: Callable[..., Any], **options: Any) -> Any:
    """Make a pytest test of each question that `regard.check` asks about a function.

    The test calls its argument ``question``, and fails with the text of the findings. The check runs once, when the
    first of the tests does. What a function has no option for is skipped; a finding that is declared with ``expected``
    is an expected failure, and with ``strict`` its absence fails, in the test of the question that it belongs to.

    Parameters
    ----------
    fn : callable
        The function, as in `regard.check`.
    **options
        As in `regard.check`.

    Returns
    -------
    callable
        The decorator.

    Raises
    ------
    UnsupportedError
        pytest is not installed.

    Examples
    --------
    >>> import regard as rg
    >>> @rg.parametrize(rg.attention)
    ... def test_attention(question):
    ...     question()
    """
    from ._pytest import parametrize

    return parametrize(fn, **options)
