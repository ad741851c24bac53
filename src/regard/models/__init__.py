"""Real encoders in plain NumPy, with every head's attention computed by regard."""

from ._folder import ModelError as ModelError
from ._folder import default_model_folder as default_model_folder
from .bert import BertEncoder as BertEncoder
from .bert import Trace as Trace
from .bert import load as load
from .compare import Comparison as Comparison
from .compare import against_reference as against_reference
from .tokens import Encoded as Encoded
from .tokens import Word as Word
