"""Regard in other ways, and the loops that say what the machine gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import regard as rg
from benchmarks import ceilings
from regard.bench import READ, Peer, Regard


class Plain(Regard):
    """The same arrays without mask and bias."""

    name = "regard, plain"

    def why_not(self, problem):
        return "" if problem.mask or problem.bias else "the problem is plain"

    def answered(self, problem):
        return replace(problem, mask=None, bias=None)

    def prepare(self, problem, given):
        return super().prepare(self.answered(problem), given)


class OneThread(Regard):
    name = "regard, one thread"

    def why_not(self, problem):
        return "" if problem.threads > 1 else "the problem has one thread"

    def prepare(self, problem, given):
        inner = super().prepare(problem, given)

        def alone():
            with rg.config(num_threads=1):
                return inner()

        return alone


class Ceiling(Peer):
    """A loop that does as much as the problem must, and no attention. On one thread."""

    outside = False

    def absent(self):
        return ceilings.absent()

    def why_not(self, problem):
        return "" if problem.threads == 1 else "the loop has one thread"

    def answered(self, problem):
        return None


class Fma(Ceiling):
    """As many operations, in registers."""

    name = "FMA in registers"

    def prepare(self, problem, given):
        fma = ceilings.loop("fma", problem.target)
        return lambda: fma(problem.flops)


class Read(Ceiling):
    """The keys and values that all are given, read once, by as many threads as the problem has."""

    name = READ

    def why_not(self, problem):
        return ""

    def threads(self, problem):
        return problem.threads

    def prepare(self, problem, given):
        read, threads = ceilings.loop("read", problem.target), self.threads(problem)
        parts = list(zip(*(ceilings.cut(x, threads) for x in (given.k, given.v)), strict=True))

        def part(pieces):
            for piece in pieces:
                read(piece.ctypes.data, piece.size)

        if threads == 1:
            return lambda: part(parts[0])
        pool = ThreadPoolExecutor(threads - 1)

        def call():
            others = [pool.submit(part, pieces) for pieces in parts[1:]]
            part(parts[0])  # meanwhile the others wake
            for other in others:
                other.result()

        return call


class ReadAlone(Read):
    """The same by one: where two do not read twice as fast, nothing that must read everything is twice as fast."""

    name = f"{READ}, one thread"

    def why_not(self, problem):
        return "" if problem.threads > 1 else "the problem has one thread"

    def threads(self, problem):
        return 1


OWN = (Plain(), OneThread(), Fma(), Read(), ReadAlone())
