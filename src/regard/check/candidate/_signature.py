"""Which argument of a function is what, by its name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import Any

# Names that functions give to what we call by the first word, lower case and without underscores.
SPELLINGS = {
    "query": "query queries q qs xq",
    "key": "key keys k ks xk",
    "value": "value values v vs xv",
    "mask": "mask attnmask attentionmask keep keypaddingmask paddingmask validmask",
    "causal": "causal iscausal usecausalmask",
    "scale": "scale softmaxscale smscale scaling",
    "bias": "bias attnbias attentionbias positionbias",
    "alibi": "alibi alibislopes slopes",
    "softcap": "softcap logitcap logitsoftcap cap attnlogitsoftcapping",
    "window": "window windowsize slidingwindow localwindow localwindowsize",
    "dropout": "dropout dropoutp dropoutrate pdrop pdropout attndropout",
    "rng": "rng generator randomstate",
    "seed": "seed",
    "enable_gqa": "enablegqa",
    "x": "x inputs hidden hiddenstates embeddings",
    "wq": "wq wquery queryweight queryproj qproj",
    "wk": "wk wkey keyweight keyproj kproj",
    "wv": "wv wvalue valueweight valueproj vproj",
    "wo": "wo wout wproj outputweight outproj oproj",
    "heads": "heads numheads nheads nhead h numattentionheads",
}
_ROLES = {spelling: role for role, spellings in SPELLINGS.items() for spelling in spellings.split()}


def role_of(name: str) -> str | None:
    """Return what a parameter of that name is."""
    return _ROLES.get(name.lower().replace("_", ""))


OPERANDS = ("query", "key", "value")
LAYER = ("x", "wq", "wk", "wv", "wo", "heads")
OPTIONS = ("mask", "causal", "scale", "bias", "alibi", "softcap", "window", "dropout")


@dataclass(frozen=True)
class Signature:
    """Parameters by role. ``positional`` holds the roles of the leading parameters that are passed by position.

    ``unasked`` are parameters whose role another one has. ``off`` has what is passed for options without a default,
    or on by default, where they are not asked for.
    """

    positional: tuple[str, ...]
    named: Mapping[str, str]
    only_positional: tuple[tuple[str, Any], ...] = ()
    evidence: str = ""
    takes_any: bool = False
    off: Mapping[str, Any] = field(default_factory=dict)
    unasked: tuple[str, ...] = ()

    def with_options(self, declared: frozenset[str]) -> Signature:
        """Pass declared options by our own names to a function that takes any keyword."""
        more = {role: role for role in OPTIONS if role in declared and role not in self.options}
        return replace(self, named={**more, **self.named}) if self.takes_any else self

    @property
    def is_layer(self) -> bool:
        """Whether it is a whole multi-head layer, with matrices."""
        return {"wq", "wk", "wv"} <= {*self.positional, *self.named}

    @property
    def options(self) -> frozenset[str]:
        """Options that have a parameter."""
        return frozenset(OPTIONS) & {*self.named, *(role for role, _ in self.only_positional)}

    def place(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments and keyword arguments for values by role; a role without a parameter is left out."""
        values = {**self.off, **values}
        arguments = [values[role] for role in self.positional]
        last = max((i for i, (role, _) in enumerate(self.only_positional) if role in values), default=-1)
        arguments += [values.get(role, default) for role, default in self.only_positional[: last + 1]]
        return arguments, {self.named[role]: value for role, value in values.items() if role in self.named}


# What switches an option off; None does for the others.
_OFF = {"causal": False, "dropout": 0.0}


def _must_be_told(p: Parameter, roles: Mapping[str, str], positional: tuple[str, ...]) -> str | None:
    """Role of an option that has no default, or is on by default."""
    role = roles.get(p.name)
    is_option = role in OPTIONS and role not in positional
    return role if is_option and (p.default is Parameter.empty or (role == "causal" and p.default is True)) else None


def read(fn: Callable[..., Any]) -> Signature:
    """Read a signature; what cannot be read is called as ``fn(query, key, value)``."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = documented(fn)
    if not parameters:
        return Signature(OPERANDS, {}, evidence="it has no signature")
    leading = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    roles = {p.name: role for p in parameters if (role := role_of(p.name))}
    if {"wq", "wk", "wv"} <= set(roles.values()):
        required = [p for p in leading if p.default is Parameter.empty]
        first = ["x"] if required and required[0].name not in roles else []
        positional = (*first, *(roles[p.name] for p in required if p.name in roles))
        named = {r: n for n, r in roles.items() if r not in positional}
        return Signature(positional, named, evidence="its parameters are named like a layer's matrices")
    by_keyword = {roles.get(p.name) for p in parameters if p.kind is Parameter.KEYWORD_ONLY} >= set(OPERANDS)
    operands = [roles.get(p.name) for p in leading[:3]]
    known = by_keyword or sorted(filter(None, operands)) == sorted(OPERANDS)
    positional = () if by_keyword else tuple(filter(None, operands)) if known else OPERANDS
    rest = leading if by_keyword else leading[3:]
    by_name = [p for p in (*rest, *parameters) if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    able = [p for p in dict.fromkeys(by_name) if p in rest or p.kind is p.KEYWORD_ONLY]
    chosen: dict[str, str] = {}
    for p in able:  # of two masks that over queries and keys, and the first of other pairs
        role = roles.get(p.name)
        if role and role not in positional and (role not in chosen or "padding" in chosen[role]):
            chosen[role] = p.name
    unasked = tuple(p.name for p in able if roles.get(p.name) in chosen and p.name not in chosen.values())
    off = {role: _OFF.get(role) for p in [*rest, *parameters] if (role := _must_be_told(p, roles, positional))}
    unnamed = tuple((roles.get(p.name, ""), p.default) for p in rest if p.kind is Parameter.POSITIONAL_ONLY)
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    return Signature(positional, chosen, unnamed, "their names" if known else "their order", takes_any, off, unasked)


def documented(fn: Callable[..., Any]) -> list[Parameter]:
    """Parameters as the documentation of a function in C begins with them, such as torch's; else none."""
    text = " ".join((getattr(fn, "__doc__", None) or "").strip().partition("\n\n")[0].split())
    name = getattr(fn, "__name__", "")
    if not text.startswith(f"{name}("):
        return []
    try:
        head = ast.parse(f"def {text.rstrip(': ')}: ...").body[0]
        assert isinstance(head, ast.FunctionDef)
        defaults = [ast.literal_eval(x) for x in head.args.defaults]
    except (SyntaxError, ValueError):
        return []
    names = [argument.arg for argument in head.args.args]
    required = [Parameter.empty] * (len(names) - len(defaults))
    given = zip(names, [*required, *defaults], strict=True)
    return [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD, default=default) for n, default in given]
