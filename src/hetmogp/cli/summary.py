"""`hetmogp summary`."""

from .application import Json, Model, app, one_clear_line, tell
from .files import learned


@app.command()
def summary(model: Model, as_json: Json = False) -> None:
    """Print what a saved model has learned: its outputs, its latents and what outputs share.

    It is what `hetmogp fit` printed when it saved the model.

    Example: hetmogp summary sales.hetmogp
    """
    with one_clear_line():
        from ..model import load

        fitted = load(model)
        tell(as_json, learned(fitted, model), fitted.summary())
