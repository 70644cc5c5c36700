"""Does `discover` find the family that data came from? Simulated columns of every family.

A recommendation counts if it is the true family, or predicts 2,000 fresh values within 0.01 nats of
it after the same small fit.

    python benchmarks/discovery.py --seeds 10
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
ROWS, FRESH = 1500, 2000


def one_family(name: str, seeds: int, first: int) -> tuple[str, int, list[str]]:
    """How many of the recommendations count, and those that are not the true family."""
    from families import COLUMNS, simulate

    import hetmogp as hm
    from hetmogp.fitted import fit
    from hetmogp.fitting import Options
    from hetmogp.session import session

    family = COLUMNS[name]
    good, others = 0, []
    for seed in range(first, first + seeds):
        sample = simulate(family, ROWS + FRESH, 50_000 + seed)
        x, y = sample.x[:, None], sample.y
        found = hm.discover(x[:ROWS], {"y": y[:ROWS]}, progress=False, seed=seed)["y"]
        if repr(found) == repr(family.likelihood) or (
            type(found) is type(family.likelihood) and not hasattr(found, "part")
        ):
            good += 1
            continue
        if found.labelled:  # which may not have seen them all
            found = found.with_classes(sorted(set(y.tolist())))
        scores = []
        for likelihood in (found, family.likelihood):
            with session():
                options = Options(
                    prior="independent" if len(likelihood.latent) <= 3 else "lmc",
                    prune=False,
                    inducing=25,
                    learn_inducing=False,
                    method="vem",
                    q="factorised",
                    max_iter=10,
                    progress=False,
                )
                fitted = fit({"y": likelihood}, x[:500], {"y": y[:500]}, options)
                scores.append(fitted.predict(x[ROWS:])["y"].log_prob(y[ROWS:]).mean())
        behind = scores[1] - scores[0]
        good += behind <= 0.01
        others.append(f"{type(found).__name__} ({behind:+.3f} behind)")
    return name, good, others


def main() -> None:
    from families import COLUMNS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(COLUMNS)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        jobs = [pool.submit(one_family, name, options.seeds, options.first) for name in names]
        for job in as_completed(jobs):
            name, good, others = job.result()
            print(f"{name:<30} {good:>3} of {options.seeds}  {', '.join(others)}", flush=True)


if __name__ == "__main__":
    main()
