"""The loop around variational EM: starts, convergence, pruning, interruption, checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import ModuleType

import numpy as np
from jax.flatten_util import ravel_pytree

from ..parameters import Parameters
from . import direct, vem
from .checkpoint import Checkpoints
from .fit import LARGEST_JITTER, Fit, NotPositiveDefiniteError, towards
from .lbfgs import MANY
from .options import Options
from .progress import Progress
from .prune import without_idle_weights
from .race import best_of
from .sites import flat_sites

__all__ = ["run_vem"]


@dataclass
class _Run:
    """A fit in progress.

    Attributes:
        fit: the best result so far.
        state: the state from which the next round starts.
        until: the most rounds.
        pruned: whether idle weights have been dropped.
    """

    fit: Fit
    state: vem.State
    until: int
    pruned: bool = False

    def reach(self, state: vem.State) -> None:
        """Continue from a state, and record it as the result so far."""
        self.state, fit = state, self.fit
        fit.parameters, fit.q, fit.bound = state.parameters, state.q, state.bound
        fit.history.append(state.objective)


def run_vem(
    starts: Sequence[Parameters],
    problem: vem.Problem,
    options: Options,
    limits: tuple[int, float],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    jitter: float | None = None,
) -> Fit:
    """Run variational EM to convergence, from the most promising start.

    Args:
        starts: initial models; each gets a few iterations, and the best one continues.
        problem: the data and how the bound is evaluated.
        options: the options of the fit.
        limits: the most rounds (0 fits q(u) only), and the gain in nats below which the fit has
            converged.
        progress: where to report progress.
        checkpoints: where to save the fit between rounds, once the best start is known.
        jitter: initially added to the diagonals of k(Z, Z); by default that of the options.
    """
    method = vem if options.natural_gradients else direct
    loop = _Loop(problem, method, limits[1], progress, checkpoints)
    best: _Run | None = None
    try:
        best = loop.resumed(starts[0], limits[0])
        if best is None:
            best = loop.begin(starts, jitter or options.jitter, limits[0])
            progress.update("first q(u)", 0.0, best.fit.bound)
        if best.fit.interrupted:
            return best.fit
        loop.advance(best, best.until, "pruned · " if best.pruned else "")
        if options.prunes and best.fit.converged and not best.pruned:
            less = without_idle_weights(best.state, problem, best.fit.jitter)
            if less is not best.state:
                best.fit.converged, best.fit.bound = False, less.bound
                best.state, best.pruned = less, True
                best.until = max(limits[0], best.fit.iterations + 1)
                loop.advance(best, best.until, "pruned · ")
        return best.fit
    except KeyboardInterrupt:
        if best is None:
            raise
        return best.fit.interrupt()


@dataclass
class _Loop:
    """Takes rounds of a method, and holds what they need."""

    problem: vem.Problem
    method: ModuleType
    tolerance: float
    progress: Progress
    checkpoints: Checkpoints | None

    def begin(self, starts: Sequence[Parameters], jitter: float, until: int) -> _Run:
        """The most promising start, with its first q(u) and as much jitter as needed.

        Where only q(u) is learned, one start is enough and none compete.
        """
        some = starts if until > 0 else starts[:1]
        states: list[vem.State] = []
        stopped = False
        try:
            while not states:
                if jitter > LARGEST_JITTER:
                    raise NotPositiveDefiniteError
                for start in some:
                    state = self.method.init(start, self.problem, jitter)
                    states += [state] if np.isfinite(state.bound) else []
                jitter *= 1.0 if states else 10.0
            state = best_of(states, partial(self._climbed, jitter), attrgetter("objective"))
        except KeyboardInterrupt as stop:
            if isinstance(stop, vem.Interrupted):
                states = [stop.state]
            if not states:
                raise
            state, stopped = states[0], True
        fit = Fit(state.parameters, state.q, state.bound, jitter, [state.objective])
        return _Run(fit.interrupt() if stopped else fit, state, until)

    def _climbed(self, jitter: float, state: vem.State, iterations: int) -> vem.State:
        """Take a start some iterations further."""
        self.progress.update("starts compete", 0.0, state.bound)
        if self.method is vem:
            return vem.step(state, self.problem, jitter, iterations=iterations)
        return self.method.step(state, self.problem, jitter)

    def advance(self, run: _Run, until: int, label: str) -> None:
        """Take rounds until one gains too little."""
        fit, first_gain, fraction = run.fit, np.nan, 0.0
        every = (self.checkpoints and self.checkpoints.every) or 1
        while fit.iterations < until and not fit.converged:
            before, what = run.state.objective, f"{label}round {fit.iterations + 1}"
            try:
                state = self.method.step(
                    *(run.state, self.problem, fit.jitter),
                    partial(self.progress.update, what, fraction),
                )
            except vem.Interrupted as stopped:
                run.reach(stopped.state)
                raise
            run.reach(state)
            gain = state.objective - before
            fit.iterations += 1
            first_gain = gain if np.isnan(first_gain) else first_gain
            fraction = towards(gain, first_gain, self.tolerance)
            self.progress.update(f"{label}round {fit.iterations}", fraction, fit.bound)
            fit.converged = bool(state.still or gain < self.tolerance)
            if fit.converged or fit.iterations % every == 0:
                self._keep(run)

    def _keep(self, run: _Run) -> None:
        if self.checkpoints is not None:
            fit, state = run.fit, run.state
            notes = {
                **{"bound": state.bound, "objective": state.objective, "jitter": fit.jitter},
                **{"history": fit.history, "converged": fit.converged, "until": run.until},
                **{"iterations": fit.iterations, "pruned": run.pruned},
            }
            arrays = (
                state.parameters,
                state.sites,
                state.q,
                self._reach(state.parameters, state.reach),
            )
            self.checkpoints.save(fit.iterations, arrays, notes)

    def _reach(self, parameters: Parameters, known: np.ndarray | None) -> np.ndarray:
        """The inverse curvature as far as known; zeros where nothing is known."""
        n = len(ravel_pytree(parameters.free(self.problem.learn_inducing))[0])
        n = n if self.method is vem and n <= MANY else 0
        return np.zeros((n, n)) if known is None else known

    def resumed(self, start: Parameters, max_iter: int) -> _Run | None:
        """The run in the latest checkpoint; None if there is no checkpoint."""
        if self.checkpoints is None:
            return None
        problem = self.problem
        sites = flat_sites(start, problem.batch, problem.rules, problem.family)
        like = (
            start,
            sites if self.method is vem else (),
            problem.family.at_prior(start.prior.widths),
            self._reach(start, None),
        )
        earlier = self.checkpoints.latest(like)
        if earlier is None:
            return None
        (parameters, sites, q, known), notes = earlier
        reach = np.asarray(known) if np.any(known) else None
        state = vem.State(*(parameters, sites, q, notes["bound"], notes["objective"]), reach=reach)
        fit = Fit(parameters, q, state.bound, notes["jitter"], notes["history"])
        fit.converged, fit.iterations = notes["converged"], notes["iterations"]
        until = max(notes["until"], max_iter) if notes["pruned"] else max_iter
        return _Run(fit, state, until, notes["pruned"])
