"""Parse once, then run: every check and every message of a call, and the frozen plan that engines follow."""

from .options import as_mask as as_mask
from .plan import Plan as Plan
from .plan import Tiles as Tiles
from .plan import make_plan as make_plan
from .problem import Asked as Asked
from .problem import Problem as Problem
from .problem import make_problem as make_problem
from .problem import read as read
from .shapes import most_keys as most_keys
