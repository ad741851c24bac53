"""Attention weights made visible: the strongest looks of a word, and a page that shows every head."""

from regard._files import destination as destination

from ._looks import Look as Look
from ._looks import strongest as strongest
from ._page import AttentionPage as AttentionPage
from ._page import Opening as Opening
