"""How fast attention is, beside others: problems, contestants, rounds in turn, and the file of a run.

`short` is what ``regard bench`` runs; the whole benchmark of the repository times more problems and contestants by the
same rules. Every contestant is held to the exact answer before it is timed.
"""

from regard._runtime import processors as processors

from ._asked import Asked as Asked
from ._asked import asked as asked
from ._bars import Bar as Bar
from ._bars import Group as Group
from ._bars import bars as bars
from ._bars import median_and_half as median_and_half
from ._bars import number as number
from ._covers import Alibi as Alibi
from ._covers import Causal as Causal
from ._covers import Lengths as Lengths
from ._covers import Random as Random
from ._covers import Window as Window
from ._judge import UnfairError as UnfairError
from ._judge import WrongAnswerError as WrongAnswerError
from ._machine import machine as machine
from ._peers import ByToken as ByToken
from ._peers import InPlace as InPlace
from ._peers import Peer as Peer
from ._peers import Regard as Regard
from ._peers import Textbook as Textbook
from ._problem import DTYPES as DTYPES
from ._problem import Given as Given
from ._problem import Problem as Problem
from ._race import QUIET as QUIET
from ._race import Line as Line
from ._race import load as load
from ._race import obstacle as obstacle
from ._race import pinned as pinned
from ._race import race as race
from ._race import rest_s as rest_s
from ._race import unquiet as unquiet
from ._results import FORMAT as FORMAT
from ._results import as_text as as_text
from ._results import kept as kept
from ._results import newest as newest
from ._results import read as read
from ._results import set_aside as set_aside
from ._results import write as write
from ._rounds import DISTURBED as DISTURBED
from ._rounds import TWICE_S as TWICE_S
from ._rounds import disturbed as disturbed
from ._rounds import interleave as interleave
from ._rounds import spread as spread
from ._short import PROBLEMS as PROBLEMS
from ._short import groups as groups
from ._short import short as short
from ._torch import Gqa as Gqa
from ._torch import MaskArray as MaskArray
from ._torch import Sdpa as Sdpa
from ._torch import Torch as Torch
from ._work import AMX as AMX
from ._work import FMA as FMA
from ._work import PAIRS as PAIRS
from ._work import PAIRS_OF as PAIRS_OF
from ._work import READ as READ
from ._work import WAYS as WAYS
from ._work import Loop as Loop
from ._work import Rates as Rates
from ._work import Work as Work
from ._work import loop_of_products as loop_of_products
from ._work import work as work
