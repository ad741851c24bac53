"""How a problem will be computed, and with what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from regard import _native, _runtime
from regard._types import FLOAT_DTYPES

from .problem import Problem


@dataclass(frozen=True)
class Tiles:
    """Tiles of one call, a tile being ``block_rows`` query rows by ``tile_keys`` keys.

    ``visited`` of them were or will be computed, ``partial`` of these with a mask, and ``skipped`` never read.
    ``mask_bytes`` is the largest band of lowered mask that is held at a time, ``bias_bytes`` what the tables of a
    bias take; an array of the user's is not counted.
    """

    visited: int
    partial: int
    skipped: int
    mask_bytes: int
    bias_bytes: int


@dataclass(frozen=True)
class Plan:
    """How a problem will be computed, and with what.

    Attributes
    ----------
    problem
        Geometry, head sizes, scale and mask.
    target, why
        Instruction set of the native engine, and the reason for it.
    threads, block_rows, tile_keys
        Threads at most; query rows of one task; keys of one tile.
    scratch_bytes
        Working memory of one thread, which it keeps. Nothing else is allocated but the outputs, a few numbers per
        head, one band of lowered mask, and the tables of a bias.
    tiles
        What became of the tiles; None where nobody asked for the count.
    """

    problem: Problem
    target: str
    why: str
    threads: int
    block_rows: int
    tile_keys: int
    scratch_bytes: int
    tiles: Tiles | None = None

    def __repr__(self) -> str:
        p, g = self.problem, self.problem.geometry
        lines = [
            f"scores      {g.user_shape}, {p.kv_heads} kv heads, D {p.d}, Dv {p.dv}, {p.dtype}",
            f"score map   scale {p.scale:.6g}{f', softcap {p.softcap:g}' if p.softcap else ''}"
            f"{', bias' if p.bias else ''}{', sinks' if p.sinks else ''}",
            f"mask        {p.mask!r}, q_offset {g.q_offset}",
            f"engine      native tiles, {self.target} ({self.why})",
            f"threads     {self.threads}, {self.scratch_bytes:,} bytes of scratch each",
        ]
        if self.tiles is not None:
            t = self.tiles
            lines.append(
                f"tiles       {self.block_rows} x {self.tile_keys}: {t.visited} visited "
                f"({t.partial} of them partial), {t.skipped} skipped"
            )
            lines.append(f"mask bands  {t.mask_bytes:,} bytes at most at a time")
            if t.bias_bytes:
                lines.append(f"bias tables {t.bias_bytes:,} bytes")
        return "\n".join(lines)


def make_plan(problem: Problem) -> Plan:
    """Choose engine, threads and tiles for a checked problem."""
    target, why = _runtime.chosen()
    kernel = _kernel(target, FLOAT_DTYPES.index(problem.dtype), problem.d, problem.dv)
    return Plan(problem, target, why, _runtime.num_threads(), *kernel)


_kernel = lru_cache(maxsize=256)(_native.kernel)
