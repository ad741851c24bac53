"""Masks: which keys each query may attend to, as values that combine with ``& | ~``."""

from ._base import Mask as Mask
from ._documents import Documents as Documents
from ._documents import KeyLengths as KeyLengths
from ._documents import KeyPadding as KeyPadding
from ._function import from_function as from_function
from ._heads import PerHead as PerHead
from ._positions import Causal as Causal
from ._positions import Chunked as Chunked
from ._positions import Dilated as Dilated
from ._positions import Empty as Empty
from ._positions import Full as Full
from ._positions import Global as Global
from ._positions import Prefix as Prefix
from ._positions import Window as Window
from ._tables import Blocks as Blocks
from ._tables import Dense as Dense
