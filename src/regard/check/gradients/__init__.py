"""Gradients: the way back of a function, compared with the right one and with every known wrong one.

It is `regard.check` once more: an oracle of small steps, faults that replace some, probes, laws, findings.
"""

from ._ask import gradient_findings as gradient_findings
from ._backward import Backward as Backward
from ._backward import ByLibrary as ByLibrary
from ._backward import ByVjp as ByVjp
from ._backward import backward_of as backward_of
from ._faults import CATALOGUE as CATALOGUE
from ._faults import GROUP as GROUP
from ._verdicts import VERDICTS as VERDICTS
