"""Attention in tiles, in NumPy."""

from __future__ import annotations

import regard as rg
from regard.bench import Peer


class Online(Peer):
    """The tiles of the lesson."""

    name = "NumPy online, 256 x 512 tiles"

    def why_not(self, problem):
        return "" if problem.dtype == "float32" else f"NumPy has no product of {problem.dtype} worth a time"

    def prepare(self, problem, given):
        options = problem.own()
        return lambda: rg.reference.online_attention(*given, **options)
