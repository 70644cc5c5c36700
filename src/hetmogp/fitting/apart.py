"""Fit outputs that share nothing one by one.

As one model they would cost (ΣK)³ + N (ΣK)² a pass, where K is the number of inducing variables of
an output. One by one they cost ΣK³ + N ΣK², and each fit ends when it has converged.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Int

from ..parameters import Parameters
from ..priors import LMC, Affine, Independent, Latents
from ..variational import Coupled
from .alone import of_output
from .checkpoint import Checkpoints
from .fit import Fit
from .full_batch import run_vem
from .options import Options
from .progress import Progress
from .vem import Problem

__all__ = ["as_one", "numbers_of", "run_apart", "share_nothing"]


def share_nothing(parameters: Parameters, problem: Problem) -> bool:
    """Whether no two outputs share a latent, so that they can be fitted one by one."""
    users = np.stack([_used(parameters, d) for d in range(len(parameters.likelihoods))])
    plain = problem.family is Coupled and not problem.learn_inducing
    return plain and len(users) > 1 and bool((users.sum(axis=0) <= 1).all())


def _used(parameters: Parameters, d: int) -> np.ndarray:
    """The latents that an output uses."""
    prior, part = parameters.prior, parameters.slices[d]
    if isinstance(prior, Independent):
        every = np.arange(len(prior.kernels))
        return (every >= part.start) & (every < part.stop)
    if isinstance(prior, LMC) and set(prior.ranks) == {1}:
        return np.asarray(np.asarray(prior.mask)[part].any(axis=0))
    return np.ones(len(prior.kernels), bool)


def _part(parameters: Parameters, d: int) -> Parameters:
    """One output with the latents that it uses."""
    prior = parameters.prior
    assert isinstance(prior, Affine)
    prior = prior.of_functions(parameters.slices[d])
    anchors = parameters.anchors[d : d + 1]
    return Parameters(prior, parameters.likelihoods[d : d + 1], anchors)


def numbers_of(
    parameters: Parameters, some: Callable[[Parameters], Parameters]
) -> Int[np.ndarray, " n"]:
    """The positions of the learned numbers of one part among those of the whole model."""
    every, unravel = ravel_pytree(parameters.free(False))
    n = len(every)
    numbered = parameters.with_free(unravel(jnp.asarray(np.arange(n) / n, every.dtype)))
    return np.rint(n * np.asarray(ravel_pytree(some(numbered).free(False))[0])).astype(int)


def run_apart(
    start: Parameters,
    problem: Problem,
    options: Options,
    limits: tuple[int, float],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Run variational EM to convergence for each output; see `run_vem`.

    After an interrupt, the remaining outputs get the best q(u) for their initial hyperparameters.
    """
    fits: list[Fit] = []
    jitter = options.jitter
    while len(fits) < len(start.likelihoods):
        d = len(fits)
        part = _part(start, d)
        own = problem._replace(
            batch=of_output(problem.batch, d),
            hint=_hint(problem.hint, _used(start, d)),
            reach=_reach(problem.reach, start, d),
        )
        interrupted = bool(fits) and fits[-1].interrupted
        most = 0 if interrupted else limits[0]
        kept = None
        if checkpoints is not None and jitter == options.jitter:  # checkpoints have this jitter
            kept = checkpoints.within(f"output{d}")
        fit = run_vem([part], own, options, (most, limits[1]), progress, kept, jitter)
        fit.interrupted |= interrupted
        if fit.jitter > jitter and fits:  # all outputs of one model have the same jitter
            jitter, fits = fit.jitter, []
            continue
        jitter = fit.jitter
        fits.append(fit)
    return as_one(start, fits)


def _hint(hint: Latents | None, used: np.ndarray) -> Latents | None:
    """The hint for some of the latents."""
    if hint is None:
        return None
    mean, cov = np.asarray(hint.mean)[:, used], np.asarray(hint.cov)[:, used][:, :, used]
    return Latents(jnp.asarray(mean), jnp.asarray(cov))


def _reach(reach: np.ndarray | None, parameters: Parameters, d: int) -> np.ndarray | None:
    if reach is None:
        return None
    places = numbers_of(parameters, partial(_part, d=d))
    return reach[np.ix_(places, places)]


def as_one(start: Parameters, fits: Sequence[Fit]) -> Fit:
    """The fits of the outputs as one model with the structure of `start`."""
    widths = start.prior.widths
    latent = np.repeat(np.arange(len(widths)), widths)  # the latent of each inducing variable
    mean, root = np.zeros(len(latent)), np.eye(len(latent))
    every, unravel = ravel_pytree(start.free(False))
    numbers = np.array(every)
    for d, fit in enumerate(fits):
        assert isinstance(fit.q, Coupled)
        own = np.flatnonzero(_used(start, d)[latent])
        mean[own], root[np.ix_(own, own)] = np.asarray(fit.q.mean)[0], np.asarray(fit.q.root)[0]
        places = numbers_of(start, partial(_part, d=d))
        numbers[places] = np.asarray(ravel_pytree(fit.parameters.free(False))[0])
    rounds = max(len(fit.history) for fit in fits)
    histories = [np.pad(fit.history, (0, rounds - len(fit.history)), "edge") for fit in fits]
    return Fit(
        start.with_free(unravel(jnp.asarray(numbers))),
        Coupled(jnp.asarray(mean)[None], jnp.asarray(root)[None]),
        sum(fit.bound for fit in fits),
        fits[0].jitter,
        np.sum(histories, axis=0).tolist(),
        all(fit.converged for fit in fits),
        fits[-1].interrupted,
        max(fit.iterations for fit in fits),
        tuple(fit.bound for fit in fits),
    )
