"""A fitted model as a program of its own, which predicts without this package."""

from .program import export

__all__ = ["export"]
