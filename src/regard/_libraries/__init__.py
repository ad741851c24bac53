"""Array libraries: whose array a value is, its memory as NumPy sees it, and results as arrays of the same library.

No library is imported here. An array of torch or JAX can only come in where its library is loaded already.
"""

from ._dtypes import as_dtype as as_dtype
from ._dtypes import bfloat16 as bfloat16
from ._dtypes import is_torch_dtype as is_torch_dtype
from ._dtypes import of_ml_dtypes as of_ml_dtypes
from ._find import TORCH as TORCH
from ._find import Maker as Maker
from ._find import as_numpy as as_numpy
from ._find import library_of as library_of
from ._find import maker_of as maker_of
from ._numpy import NUMPY as NUMPY
from ._numpy import Library as Library
