"""How a problem will be computed, and with what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from regard import _native, _runtime
from regard._types import FLOAT_DTYPES, score_dtype

from .problem import Problem


@dataclass(frozen=True)
class Tiles:
    """Tiles of one call, a tile being ``block_rows`` query rows by ``tile_keys`` keys.

    ``visited`` of them were or will be computed, ``partial`` of these with a mask, and ``skipped`` never read.
    ``mask_bytes`` is the largest band of lowered mask that is held at a time, ``bias_bytes`` what the tables of a
    bias take; an array of the user's is not counted. ``chunk_bytes`` is what several threads take that share the keys
    of few rows: at most four states of a block of rows per thread, or 4 MiB if that is more; 0 where they share none.
    """

    visited: int
    partial: int
    skipped: int
    mask_bytes: int
    bias_bytes: int
    chunk_bytes: int


@dataclass(frozen=True)
class Plan:
    """How a problem will be computed, and with what. Printed, it says all of it.

    Attributes
    ----------
    problem
        Geometry, head sizes, scale and mask.
    target, why
        Instruction set of the native engine, and the reason for it.
    threads, block_rows, tile_keys
        Threads at most; query rows and keys of one tile, as tiles are counted.
    scratch_bytes
        Working memory of one thread, which it keeps. Nothing else is allocated but the outputs, a few numbers per
        head, one band of lowered mask, the tables of a bias, and the states of chunks of keys.
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

    @property
    def most_tiles(self) -> int:
        """Bound on the tiles that a count looks at: batch entries that share keys may make fewer."""
        p, g = self.problem, self.problem.geometry
        blocks = p.total_heads // p.group * -(-p.group * g.queries // self.block_rows)
        return blocks * -(-g.keys // self.tile_keys)

    @property
    def workspace_bytes(self) -> int | None:
        """What a call allocates at most, all threads together, besides its outputs and a few numbers per head.

        Of a bias's row, what this call reads: where the row grows, the bias makes and keeps up to twice as much.
        None where the tiles were not counted.
        """
        if self.tiles is None:
            return None
        tiles = self.tiles
        return self.threads * self.scratch_bytes + tiles.mask_bytes + tiles.bias_bytes + tiles.chunk_bytes

    @property
    def scores_bytes(self) -> int:
        """What an array of all scores would take; no call makes one."""
        return math.prod(self.problem.geometry.shape) * score_dtype(self.problem.dtype).itemsize

    def facts(self) -> dict[str, Any]:
        """Say all of it in values that JSON has.

        Examples
        --------
        >>> import numpy as np, regard as rg
        >>> x = np.broadcast_to(np.float32(0), (8, 1000, 64))
        >>> facts = rg.plan(x, x, x, mask=rg.Causal()).facts()
        >>> facts["scores"], facts["mask"], facts["scores_bytes"]
        ([8, 1000, 1000], 'Causal()', 32000000)
        """
        p, g, tiles = self.problem, self.problem.geometry, self.tiles
        return {
            "scores": list(g.user_shape),
            "kv_heads": p.kv_heads,
            "d": p.d,
            "dv": p.dv,
            "dtype": p.dtype,
            "scale": p.scale,
            "softcap": p.softcap or None,
            "bias": p.bias,
            "sinks": p.sinks,
            "mask": repr(p.mask),
            "q_offset": g.q_offset if isinstance(g.q_offset, int) else list(g.q_offset.values),
            "target": self.target,
            "why": self.why,
            "threads": self.threads,
            "scratch_bytes": self.scratch_bytes,
            "block_rows": self.block_rows,
            "tile_keys": self.tile_keys,
            "tiles": tiles and {"visited": tiles.visited, "partial": tiles.partial, "skipped": tiles.skipped},
            "mask_bytes": tiles and tiles.mask_bytes,
            "bias_bytes": tiles and tiles.bias_bytes,
            "chunk_bytes": tiles and tiles.chunk_bytes,
            "workspace_bytes": self.workspace_bytes,
            "scores_bytes": self.scores_bytes,
        }

    def told(self) -> dict[str, str]:
        """Say all of it in words, each line by its name."""
        p, g, tiles = self.problem, self.problem.geometry, self.tiles
        heads = f"{g.heads} head{'s' if g.heads != 1 else ''}"
        shared = f", {p.kv_heads} of key and value" if p.kv_heads != g.heads else ""
        lines = {
            "scores": f"{g.user_shape}, {heads}{shared}, D {p.d}, Dv {p.dv}, {p.dtype}",
            "scale": f"{p.scale:.6g}" + (f", softcap {p.softcap:g}" if p.softcap else "")
            + (", bias" if p.bias else "") + (", sinks" if p.sinks else ""),
            "mask": f"{p.mask!r}, query 0 at position {self.facts()['q_offset']}",
            "engine": f"native tiles, {self.target} ({self.why})",
            "threads": f"{self.threads}, {self.scratch_bytes:,} bytes of scratch each",
        }  # fmt: skip
        if tiles is not None:
            lines["tiles"] = (
                f"{tiles.visited:,} of {tiles.visited + tiles.skipped:,} visited, {tiles.partial:,} of them partial; "
                f"{tiles.skipped:,} skipped; each of up to {self.block_rows} queries x {self.tile_keys} keys"
            )
            parts = [f"scratch {self.threads * self.scratch_bytes:,} bytes"]
            parts += [f"mask bands {tiles.mask_bytes:,} bytes"] if tiles.mask_bytes else []
            parts += [f"bias tables {tiles.bias_bytes:,} bytes"] if tiles.bias_bytes else []
            parts += [f"states of chunks {tiles.chunk_bytes:,} bytes"] if tiles.chunk_bytes else []
            lines["memory"] = (
                f"{self.workspace_bytes:,} bytes at most besides inputs and output ({', '.join(parts)}); "
                f"all scores would be {self.scores_bytes:,} bytes"
            )
        return lines

    def __repr__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self.told().items())


def make_plan(problem: Problem, engine: _runtime.Engine | None = None) -> Plan:
    """Choose tiles for a checked problem, and the engine where the caller has not asked which is in force."""
    engine = engine or _runtime.engine()
    kernel = _kernel(engine.target, FLOAT_DTYPES.index(problem.dtype), problem.d, problem.dv)
    return Plan(problem, engine.target, engine.why, engine.num_threads or _runtime.processors(), *kernel)


_kernel = lru_cache(maxsize=256)(_native.kernel)
