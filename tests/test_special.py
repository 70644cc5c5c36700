"""Functions that likelihoods share, against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from hetmogp.likelihoods.special import log_gamma
from hetmogp.session import session


@pytest.mark.parametrize(("dtype", "digits"), [("float64", 2e-14), ("float32", 1e-5)])
def test_log_gamma_and_its_slopes_equal_scipys(dtype, digits):
    x = np.concatenate([np.geomspace(1e-9, 1e9, 5001), [1.0, 2.0, 7.999999, 8.0, 8.000001]])
    with session(dtype):
        at = jnp.asarray(x, dtype=dtype)
        each = [jax.vmap(f)(at) for f in (log_gamma, jax.grad(log_gamma))]
        curvature = jax.vmap(jax.grad(jax.grad(log_gamma)))(at[::50])
    x = np.asarray(at, float)
    for found, expected in zip(each, (special.gammaln(x), special.digamma(x)), strict=True):
        error = np.abs(np.asarray(found, float) - expected) / np.maximum(np.abs(expected), 1.0)
        assert error.max() < digits
    np.testing.assert_allclose(curvature, special.polygamma(1, x[::50]), rtol=1e2 * digits)
