"""`python -m hetmogp` is the command line."""

from .cli import app

app()
