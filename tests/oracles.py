"""Distributions that scipy.stats lacks, in its manner: written out in NumPy, slow and plain."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import integrate, optimize, special, stats


class Frozen:
    """What a frozen distribution offers, from the parts a subclass writes."""

    var: Callable[..., Any]
    logpmf: Callable[..., Any]
    cdf: Callable[..., Any]
    reach: Callable[..., Any]

    def std(self):
        return np.sqrt(self.var())

    def pmf(self, y):
        return np.exp(self.logpmf(y))

    def ppf(self, q):
        """Of scalar parameters, or the widest of many, by bisection."""
        low, high = self.reach()
        return np.array(
            [
                optimize.brentq(lambda y, i=i: np.ravel(self.cdf(y))[i] - q, low, high)
                if np.ravel(self.cdf(low))[i] < q
                else low
                for i in range(np.size(self.cdf(low)))
            ]
        ).reshape(np.shape(self.cdf(low)))


class Inflated(Frozen):
    """Zero for sure with probability `zero`, else `count`."""

    def __init__(self, zero, count):
        self.zero, self.count = zero, count

    def logpmf(self, y):
        other = np.log1p(-self.zero) + self.count.logpmf(y)
        return np.where(np.asarray(y) == 0, np.logaddexp(np.log(self.zero), other), other)

    def cdf(self, y):
        return np.where(np.asarray(y) < 0, 0.0, self.zero + (1 - self.zero) * self.count.cdf(y))

    def mean(self):
        return (1 - self.zero) * self.count.mean()

    def var(self):
        square = self.count.var() + self.count.mean() ** 2
        return (1 - self.zero) * square - self.mean() ** 2

    def ppf(self, q):
        inner = np.clip((q - self.zero) / (1 - self.zero), 1e-12, 1.0)
        return np.where(q <= self.zero, 0.0, self.count.ppf(inner))


class Hurdled(Frozen):
    """Zero with probability `zero`, else `part` given that it is above zero."""

    def __init__(self, zero, part):
        self.zero, self.part, self.above = zero, part, part.sf(0.0)

    def logpmf(self, y):
        if y == 0:
            return np.broadcast_to(np.log(self.zero), np.shape(self.part.mean()))
        inner = self.part.logpmf(y) if hasattr(self.part, "logpmf") else self.part.logpdf(y)
        return np.log1p(-self.zero) + inner - np.log(self.above)

    logpdf = logpmf

    def cdf(self, y):
        inside = (self.part.cdf(y) - (1 - self.above)) / self.above
        return np.where(np.asarray(y) < 0, 0.0, self.zero + (1 - self.zero) * np.maximum(inside, 0))

    def mean(self):
        return (1 - self.zero) * self.part.mean() / self.above

    def var(self):
        square = (self.part.var() + self.part.mean() ** 2) / self.above
        return (1 - self.zero) * square - self.mean() ** 2

    def ppf(self, q):
        inner = np.clip((q - self.zero) / (1 - self.zero), 1e-12, 1.0)
        return np.where(q <= self.zero, 0.0, self.part.ppf(1 - self.above * (1 - inner)))


class Ordered(Frozen):
    """P(y ≤ k) = σ(c_{k+1} − location)."""

    def __init__(self, location, cutpoints):
        self.below = special.expit(np.asarray(cutpoints) - np.asarray(location)[..., None])
        self.above = special.expit(np.asarray(location)[..., None] - np.asarray(cutpoints))

    def _p(self):
        one = np.ones((*self.below.shape[:-1], 1))
        from_below = np.diff(self.below, axis=-1, prepend=0 * one, append=one)
        from_above = -np.diff(self.above, axis=-1, prepend=one, append=0 * one)
        near = np.concatenate([self.below, one], axis=-1) < 0.5  # the smaller tail has the digits
        return np.where(near, from_below, from_above)

    def logpmf(self, y):
        return np.log(self._p()[..., int(y)])

    def cdf(self, y):
        y = np.asarray(y)
        cumulative = np.concatenate([self.below, np.ones((*self.below.shape[:-1], 1))], axis=-1)
        k = np.clip(np.floor(y), 0, self.below.shape[-1]).astype(int)
        if k.ndim == 2:  # (values, 1) against (parameters,)
            return np.where(y < 0, 0.0, cumulative[:, k[:, 0]].T)
        return np.where(y < 0, 0.0, cumulative[..., k])

    def mean(self):
        return self._p() @ np.arange(self.below.shape[-1] + 1.0)

    def var(self):
        away = np.arange(self.below.shape[-1] + 1.0) - np.asarray(self.mean())[..., None]
        return np.sum(self._p() * away**2, axis=-1)

    def ppf(self, q):
        return np.sum(self.below < q, axis=-1).astype(float)


class EdgedBeta(Frozen):
    """0 or 1 with probability `edge`, then 1 with probability `one`; else `part`."""

    def __init__(self, edge, one, part):
        self.edge, self.one, self.part = edge, one, part

    def logpdf(self, y):
        if y in (0.0, 1.0):
            return np.log(self.edge) + np.log(self.one if y == 1.0 else 1.0 - self.one)
        return np.log1p(-self.edge) + self.part.logpdf(y)

    def cdf(self, y):
        inside = self.edge * (1 - self.one) + (1 - self.edge) * self.part.cdf(y)
        return np.where(np.asarray(y) < 0, 0.0, np.where(np.asarray(y) < 1, inside, 1.0))

    def mean(self):
        return self.edge * self.one + (1 - self.edge) * self.part.mean()

    def var(self):
        square = self.part.var() + self.part.mean() ** 2
        return self.edge * self.one + (1 - self.edge) * square - self.mean() ** 2

    def reach(self):
        return 0.0, 1.0


class LogitNormal(Frozen):
    """σ of a normal."""

    def __init__(self, mean, scale):
        self.normal = stats.norm(mean, scale)

    def logpdf(self, y):
        return self.normal.logpdf(special.logit(y)) - np.log(y) - np.log1p(-y)

    def cdf(self, y):
        return self.normal.cdf(special.logit(np.clip(y, 0.0, 1.0)))

    def _moment(self, power):
        means, scale = np.ravel(self.normal.mean()), np.ravel(self.normal.std())[0]
        return np.reshape(
            [
                integrate.quad(
                    lambda e, m=m: special.expit(m + scale * e) ** power * stats.norm.pdf(e),
                    -12,
                    12,
                )[0]
                for m in means
            ],
            np.shape(self.normal.mean()),
        )

    def mean(self):
        return self._moment(1)

    def var(self):
        return self._moment(2) - self._moment(1) ** 2

    def ppf(self, q):
        return special.expit(self.normal.ppf(q))


class LogLogistic(Frozen):
    """e to the power of a logistic variable."""

    def __init__(self, location, scale):
        self.logistic, self.angle = stats.logistic(location, scale), np.pi * np.asarray(scale)
        self.location = np.asarray(location)

    def logpdf(self, y):
        return self.logistic.logpdf(np.log(y)) - np.log(y)

    def cdf(self, y):
        return np.where(y > 0, self.logistic.cdf(np.log(np.maximum(y, 1e-300))), 0.0)

    def mean(self):
        a = self.angle
        finite = np.exp(self.location) * a / np.sin(np.where(a < np.pi, a, 1.0))
        return np.where(a < np.pi, finite, np.inf)

    def var(self):
        a = np.where(self.angle < np.pi / 2, self.angle, 1.0)
        square = 2 * a / np.sin(2 * a) - (a / np.sin(a)) ** 2
        return np.where(self.angle < np.pi / 2, np.exp(2 * self.location) * square, np.inf)

    def ppf(self, q):
        return np.exp(self.logistic.ppf(q))
