"""Tests compile hundreds of small programs and run each for a moment: compile them quickly.

The stress test, the demo's own process and the benchmarks run with XLA's usual optimisation.
"""

import jax

jax.config.update("jax_disable_most_optimizations", True)
