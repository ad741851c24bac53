"""What a contestant is."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np


class Peer:
    """A way to compute attention, under a name.

    `outside`: somebody else's, so that it counts among the best of the others. `needs`: what must be installed.
    """

    name = ""
    outside = True
    needs: tuple[str, ...] = ()

    def absent(self):
        """Why it is not there at all; empty if it is."""
        missing = [module for module in self.needs if find_spec(module) is None]
        return f"not installed: {', '.join(missing)}" if missing else ""

    def why_not(self, problem):
        """Why it cannot be asked this; empty if it can."""
        return ""

    def can(self, problem):
        """Can it be asked this problem, here."""
        return not (self.absent() or self.why_not(problem))

    def answered(self, problem):
        """The problem that its answer is of; None if it gives none."""
        return problem

    def prepare(self, problem, given):
        """A function without arguments that is timed; what is done once per model, not per call, is done here."""
        raise NotImplementedError

    def array(self, answer):
        """What that function returned, as an array in the query's shape."""
        return np.asarray(answer)
