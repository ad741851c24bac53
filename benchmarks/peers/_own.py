"""Regard, whole and in part, and the loops that say what the machine gives."""

from __future__ import annotations

from dataclasses import replace

import regard as rg
from benchmarks import ceilings
from benchmarks.peers._peer import Peer


def call(given, problem):
    options = {}
    if problem.mask is not None:
        options["mask"] = problem.mask.own()
    if problem.bias is not None:
        options["bias"] = problem.bias.own()
    return lambda: rg.attention(*given, **options)


class Regard(Peer):
    name = "regard"
    outside = False

    def prepare(self, problem, given):
        return call(given, problem)


class Plain(Peer):
    """The same arrays without mask and bias."""

    name = "regard, plain"
    outside = False

    def why_not(self, problem):
        return "" if problem.mask or problem.bias else "the problem is plain"

    def answered(self, problem):
        return replace(problem, mask=None, bias=None)

    def prepare(self, problem, given):
        return call(given, self.answered(problem))


class OneThread(Peer):
    name = "regard, one thread"
    outside = False

    def why_not(self, problem):
        return "" if problem.threads > 1 else "the problem has one thread"

    def prepare(self, problem, given):
        inner = call(given, problem)

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
    """As many bytes as the keys and values have, read once."""

    name = "reading keys and values"

    def prepare(self, problem, given):
        read, buffer = ceilings.loop("read", problem.target), ceilings.numbers(problem.bytes_of_kv // 4)
        return lambda: read(buffer.ctypes.data, buffer.size)


OWN = (Regard(), Plain(), OneThread(), Fma(), Read())
