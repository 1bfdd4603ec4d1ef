"""What the explanations claim, tried."""

import re

import numpy as np

from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.lab.market import LOCAL, SHARED
from tests.documentation.documents import DOCUMENTS, ROOT, blocks


def test_two_letters_that_differ_by_one_sale_give_it_away() -> None:
    """docs/explanation/privacy.md, with netpool and without local features."""
    generator = np.random.default_rng(7)
    city: Learner = make_policy("netpool").learner(Shape(arms=3, shared=4, local=0))
    for context in generator.normal(size=(50, 4)):
        city.learn(context, int(generator.integers(3)), reward=float(generator.normal()))
    before = {name: part.copy() for name, part in city.summarise().items()}
    secret, reward = generator.normal(size=4), 0.8
    city.learn(secret, 1, reward=reward)
    after = city.summarise()
    difference = after["information"][1] - before["information"][1]
    values, vectors = np.linalg.eigh(difference)
    found = vectors[:, -1] * np.sqrt(values[-1])
    sign = np.sign(found @ secret)
    np.testing.assert_allclose(sign * found, secret, rtol=1e-8)
    response = after["response"][1] - before["response"][1]
    np.testing.assert_allclose(abs(response @ found) / (found @ found), reward, rtol=1e-8)
    assert after["count"][1] - before["count"][1] == 1


def test_with_a_constant_feature_a_letter_tells_the_sum_of_rewards() -> None:
    generator = np.random.default_rng(8)
    city: Learner = make_policy("netpool").learner(Shape(arms=2, shared=3, local=0))
    total = 0.0
    for _ in range(40):
        reward = float(generator.normal())
        total += reward
        city.learn([1.0, *generator.normal(size=2)], 0, reward=reward)
    np.testing.assert_allclose(city.summarise()["response"][0][0], total, rtol=1e-9)


def test_no_example_shares_a_competitors_price() -> None:
    """docs/explanation/responsible-pricing.md says so."""
    files = [*ROOT.glob("docs/*.toml"), *ROOT.glob("docs/*.csv"), *ROOT.glob("deploy/**/*.toml")]
    texts = [path.read_text() for path in files]
    texts += [block for path in DOCUMENTS for block in blocks(path.read_text(), "toml")]
    texts += [name for name, _, _ in SHARED] + list(LOCAL)
    assert len(files) >= 5
    assert [text for text in texts if re.search("competitor|rival", text, re.IGNORECASE)] == []


def test_every_figure_of_the_papers_summary_is_in_the_report() -> None:
    summary = (ROOT / "docs/paper/summary.md").read_text()
    report = (ROOT / "docs/paper/report.md").read_text()
    figures = set(re.findall(r"\d\.\d+(?: ± \d\.\d+)?", summary))
    assert len(figures) > 10
    assert {figure for figure in figures if figure not in report} == set()
    for number in re.findall(r"claims? (\d+)", summary):
        assert f"\n| {number} | " in report
