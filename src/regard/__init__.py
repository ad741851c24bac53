"""regard: exact scaled dot-product attention for NumPy arrays on the CPU, in O(n) memory."""

from regard import masks as masks
from regard import numerics as numerics
from regard import reference as reference
from regard._attention.forward import Aux as Aux
from regard._attention.forward import ForwardResult as ForwardResult
from regard._attention.forward import attention as attention
from regard._attention.forward import attention_forward as attention_forward
from regard._attention.forward import plan as plan
from regard._errors import AlignmentError as AlignmentError
from regard._errors import DTypeError as DTypeError
from regard._errors import MaskError as MaskError
from regard._errors import RegardError as RegardError
from regard._errors import ShapeError as ShapeError
from regard._errors import UnsupportedError as UnsupportedError
from regard._runtime import config as config
from regard.masks import Blocks as Blocks
from regard.masks import Causal as Causal
from regard.masks import Chunked as Chunked
from regard.masks import Dense as Dense
from regard.masks import Dilated as Dilated
from regard.masks import Documents as Documents
from regard.masks import Empty as Empty
from regard.masks import Full as Full
from regard.masks import Global as Global
from regard.masks import KeyLengths as KeyLengths
from regard.masks import Mask as Mask
from regard.masks import Prefix as Prefix
from regard.masks import Window as Window
from regard.masks import from_function as from_function
from regard.state import AttentionState as AttentionState
from regard.state import merge_states as merge_states

__version__ = "0.1.0"
