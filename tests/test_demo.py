"""The missing gap: sharing where there is something to share, nothing where there is not."""

import numpy as np
import pytest

from hetmogp import demo


@pytest.fixture(scope="module")
def sharing():
    problem = demo.simulate(0, demo.SHARING)
    return problem, *demo.fit_both(problem, progress=False)


def test_the_joint_model_is_near_the_truth_in_the_gap_and_the_independent_one_is_not(sharing):
    problem, joint, alone = sharing
    assert joint.converged_
    assert alone.converged_
    assert demo.nlpd_in_gap(joint, problem) < problem.nlpd_of_truth + 0.05
    assert demo.nlpd_in_gap(alone, problem) > problem.nlpd_of_truth + 0.2
    assert joint.elbo_ > alone.elbo_ + 5.0


def test_weights_the_data_does_not_ask_for_are_exactly_zero(sharing):
    """One latent drives both outputs; the others are dropped, and with the paper's weights, where
    the functions share next to nothing, each output keeps to itself and matches its own model."""
    _, joint, _ = sharing
    assert np.count_nonzero(joint.weights_) == 2
    assert np.count_nonzero(joint.weights_.any(axis=0)) == 1

    problem = demo.simulate(0, demo.PAPER)
    joint, alone = demo.fit_both(problem, progress=False)
    assert np.count_nonzero(joint.weights_) == 2
    assert np.count_nonzero(joint.weights_.any(axis=0)) == 2
    assert demo.nlpd_in_gap(joint, problem) == pytest.approx(
        demo.nlpd_in_gap(alone, problem), abs=0.01
    )


def test_the_demo_writes_its_figure_and_says_what_it_found(sharing, tmp_path, monkeypatch):
    problem, joint, alone = sharing
    monkeypatch.setattr(demo, "fit_both", lambda problem: (joint, alone))
    said = demo.run(tmp_path).split("\n")
    target = tmp_path / "missing_gap.png"
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert list(tmp_path.iterdir()) == [target]
    assert said[-1] == f"figure: {target}"
    joint_row = f"joint (hetmogp) {demo.nlpd_in_gap(joint, problem):.3f} {joint.elbo_:.1f}"
    assert " ".join(said[2].split()).startswith(joint_row)
