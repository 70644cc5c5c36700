"""Saved models: one file of numbers and plain text, read without running anything found in it.

A `.hetmogp` file is a safetensors file. Its tensors are the numbers of the model, named by their
place in it ("parameters.prior.kernels.0.lengthscale"); its metadata holds the format's version, a
JSON description of everything that is not a number (outputs and likelihoods, inputs and their
units, kernels, options, how the fit went), and the SHA-256 of all of that. Classes are looked up by
name among the package's own, and among those the caller passes as `custom`; nothing is unpickled.
"""

from .read import ModelFileError, Saved, load
from .write import VERSION, refuse_unsaveable, save

__all__ = ["VERSION", "ModelFileError", "Saved", "load", "refuse_unsaveable", "save"]
