"""The array libraries whose functions are checked: how arrays are sent, read and differentiated in each.

No library is imported here: a function of torch's or JAX's can only come in where its library is loaded already.
"""

from ._base import Arrays as Arrays
from ._base import GraphCutError as GraphCutError
from ._base import Pullback as Pullback
from ._find import NAMES as NAMES
from ._find import loaded as loaded
from ._find import named as named
from ._find import whose as whose
from ._numpy import NUMPY as NUMPY
