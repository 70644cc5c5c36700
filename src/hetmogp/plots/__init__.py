"""Pictures of a fitted model, drawn on the Axes given, or on new ones, which are returned.

Of one output: `posterior` along an input, `fan` past the end of the data, `surface` over two. Of
what was learned: `parameter_functions`, `latents`, `coregionalisation`, `bound`. Of how good it is:
`calibration`, `comparison`. Nothing is shown or saved: that is for the caller.
"""

from .learned import bound, coregionalisation, latents, parameter_functions
from .outputs import fan, observations, posterior, shade, surface
from .quality import calibration, comparison

__all__ = [
    "bound",
    "calibration",
    "comparison",
    "coregionalisation",
    "fan",
    "latents",
    "observations",
    "parameter_functions",
    "posterior",
    "shade",
    "surface",
]
