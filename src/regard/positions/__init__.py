"""Positions of tokens: the rotation of queries and keys, and sinusoids that are added to embeddings.

Attention itself does not know where a token stands. Angles are computed in float64 whatever the dtype: in float32 the
product of a position and a frequency is off by 0.05 radians at position 10⁶.
"""

from regard.positions._frequencies import rotary_frequencies as rotary_frequencies
from regard.positions._rotary import rotary_embedding as rotary_embedding
from regard.positions._rotary import rotate as rotate
from regard.positions._sinusoidal import sinusoidal_positions as sinusoidal_positions
