"""Attention weights made visible: the strongest looks of a word, and a page that shows every head."""

from ._looks import Look as Look
from ._looks import strongest as strongest
from .page import render_page as render_page
from .page import write_page as write_page
