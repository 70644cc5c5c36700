"""The missing gap over many seeds: truth, joint and independent, with bounds and times.

    python benchmarks/gap.py --seeds 10

Default settings but for the problem's own (Q = 3, M = 20), run to the convergence rule. With
`--starts` it also says how much bounds differ from one start to another.
"""

import argparse
import time

import numpy as np

from hetmogp import demo


def compare(name: str, weights: tuple, seeds: range, starts: int) -> None:
    print(f"\n{name} weights {weights}")
    head = ("seed", "truth", "joint", "indep.", "bound", "bound", "joint s", "indep. s")
    widths = (4, 7, 7, 7, 10, 10, 8, 8)
    print(" ".join(f"{h:>{w}}" for h, w in zip(head, widths, strict=True)), end="")
    print("  bounds of all starts" if starts > 1 else "")
    rows = []
    for seed in seeds:
        problem = demo.simulate(seed, weights)
        joint, alone = demo.fit_both(problem, progress=False)
        if seed == seeds[0]:  # the first pair compiles; time what every later one costs
            began = time.perf_counter()
            joint, alone = demo.fit_both(problem, progress=False)
            print(f"     (first pair again, compiled: {time.perf_counter() - began:.1f} s)")
        scores = [demo.nlpd_in_gap(model, problem) for model in (joint, alone)]
        rows.append([problem.nlpd_of_truth, *scores])
        print(
            f"{seed:>4} {rows[-1][0]:>7.3f} {scores[0]:>7.3f} {scores[1]:>7.3f} "
            f"{joint.elbo_:>10.2f} {alone.elbo_:>10.2f} "
            f"{joint.fit_seconds_:>8.2f} {alone.fit_seconds_:>8.2f}",
            end="",
        )
        if starts > 1:
            others = [
                demo.fit_both(problem, progress=False, seed=s)[0].elbo_ for s in range(1, starts)
            ]
            print("  " + " ".join(f"{bound:.2f}" for bound in [joint.elbo_, *others]), end="")
        print(flush=True)
    table = np.array(rows)
    truth, joint_mean, alone_mean = table.mean(axis=0)
    difference = table[:, 1] - table[:, 2]
    print(f"mean {truth:>7.3f} {joint_mean:>7.3f} {alone_mean:>7.3f}")
    print(
        f"joint − independent: {difference.mean():+.4f} ± {difference.std(ddof=1):.4f} over seeds; "
        f"joint below on {np.sum(difference < 0)} of {len(table)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    compare("the paper's", demo.PAPER, seeds, options.starts)
    compare("sharing", demo.SHARING, seeds, options.starts)
