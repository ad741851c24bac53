"""A page for each name that a finding of `check` may have, made in the build by `_ext/catalogue_pages.py`.

`facts` plants each fault in a right function and asks `check`; `write` makes the text. Nothing here is written twice:
what a fault does, why it matters and how to mend it stand in `regard.check`.
"""
