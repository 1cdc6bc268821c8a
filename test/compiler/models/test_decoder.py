"""A small decoder trains on the card as its NumPy reference does. It continues a text from a cache as it does without
one.
"""

from pathlib import Path

import decoder_model
import numpy as np
import pytest

from ringup.compiler.explain import explain
from ringup.compiler.tensor import Tensor, no_grad
from ringup.compiler.tensor.order import prepared
from ringup.optim import AdamW

# A text that stays as it is: what is learnt must not depend on the words of today's documentation.
TEXT = np.frombuffer((Path(__file__).parents[3] / "LICENSE").read_bytes(), np.uint8)
BATCH, POSITIONS, STEPS, RATE = 4, 16, 24, 5e-3
# Adam divides each gradient by its own size, so a gradient of 1e-8, which is mostly rounding, would become a whole step
# in a random direction. A larger term below the fraction keeps such gradients small.
EPS = 1e-4
ROOM, AT_ONCE = 24, 8
# Both compute the same sums in f32 and f64, the second in another order. Measured over four texts and two seeds: at
# most 5e-7 within 24 steps.
TOLERANCE = 2e-6
# Logits are a few units large. Measured: 2e-7 before the training.
LOGITS = 1e-5
SEED = 7


def batches():
    random = np.random.default_rng(SEED)
    for _ in range(STEPS):
        starts = random.integers(0, len(TEXT) - POSITIONS - 1, BATCH)
        yield np.stack([TEXT[start : start + POSITIONS + 1] for start in starts]).astype(np.int32)


def wide(weights):
    return {name: one.astype(np.float64) for name, one in weights.items()}


def trained(decoder, evaluator):
    """Return a model after its training: (model, losses on the card, the reference's losses, number of graphs after
    each step).
    """
    weights = decoder.initial(SEED)
    reference = decoder.AdamW(wide(weights), RATE, eps=EPS)
    model = decoder_model.Decoder(weights, ROOM, AT_ONCE)
    optimiser = AdamW(list(model.weights.values()), RATE, eps=EPS)
    found, wanted, graphs = [], [], []
    for batch in batches():
        loss, gradients = decoder.loss_and_gradients(reference.weights, batch)
        reference.step(gradients)
        wanted.append(loss)
        here = model.loss(Tensor(batch))
        optimiser.zero_grad()
        here.backward()
        optimiser.step()
        optimiser.realize(here)
        found.append(here.item())
        graphs.append(len(evaluator.graphs))
    return model, found, wanted, graphs


def test_the_reference_has_the_gradients_of_its_loss(decoder):
    random = np.random.default_rng(1)
    weights, tokens, step = wide(decoder.initial(2)), random.integers(0, 256, (2, 9)), 1e-5
    _, gradients = decoder.loss_and_gradients(weights, tokens)
    assert gradients.keys() == weights.keys()
    for name, one in weights.items():
        way = random.standard_normal(one.shape)
        up, down = (
            decoder.loss_and_gradients({**weights, name: one + sign * step * way}, tokens)[0] for sign in (1, -1)
        )
        assert (gradients[name] * way).sum() == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8), name


def check_losses(found, wanted):
    """Check that the losses agree step by step, and fall."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)
    assert np.mean(found[-4:]) < found[0] - 1.5


def check_graphs(graphs):
    """Check that a step with other data reuses a kept graph."""
    # The first step also makes the optimiser's memory.
    assert graphs[2:] == [graphs[1]] * (STEPS - 2)


def told(model):
    """Return a model's continuation of a text from its cache: (text, logits after each letter that it added)."""
    text, logits = list(b"a card "), []
    with no_grad():
        at, given = 0, text
        while len(text) < ROOM:
            room = np.zeros((1, AT_ONCE), np.int32)
            room[0, : len(given)] = given
            logits.append(model.following(Tensor(room)).realize(sizes={"at": at, "count": len(given)}).numpy())
            at, given = at + len(given), [int(logits[-1].argmax())]
            text = text + given
    return text, logits


def check_cache(model, text, logits):
    """Check that the model continues a text from the cache as it does without one."""
    with no_grad():
        at_once = model.logits(Tensor(np.array([text], np.int32))).numpy()[0]
    first = ROOM - len(logits)
    np.testing.assert_allclose(logits, at_once[first - 1 : -1], rtol=0, atol=LOGITS)
    assert text[first:] == at_once[first - 1 : -1].argmax(-1).tolist()


def check_reference(model, text, logits, decoder):
    """Check that the model continues a text as the reference does."""
    weights = wide({name: one.numpy() for name, one in model.weights.items()})
    wanted = decoder.forward(weights, np.array([text]))[0][0]
    np.testing.assert_allclose(logits, wanted[ROOM - len(logits) - 1 : -1], rtol=0, atol=LOGITS)


def check_one_graph(model, on_card):
    """Check that one graph both reads the text and continues it."""
    before = len(on_card.graphs)
    with no_grad():
        model.following(Tensor(np.zeros((1, AT_ONCE), np.int32))).realize(sizes={"at": 3, "count": 2}).numpy()
    assert len(on_card.graphs) == before


def test_it_learns_and_goes_on_as_its_reference_does(decoder, evaluator, on_evaluator, on_card):
    """One test, so that only one process trains: most of the time goes into translating kernels for the virtual
    card.
    """
    model, found, wanted, graphs = trained(decoder, evaluator)
    check_losses(found, wanted)
    check_graphs(graphs)
    text, logits = told(model)
    check_cache(model, text, logits)
    check_reference(model, text, logits, decoder)
    check_one_graph(model, on_card)


def test_a_step_attends_to_its_cache_in_one_kernel_a_layer(decoder):
    """The lengths of the cache and of the text are known only at run time, and the same graph writes the cache."""
    with no_grad():
        model = decoder_model.Decoder(decoder.initial(SEED), ROOM, AT_ONCE)
        made = model.following(Tensor(np.zeros((1, AT_ONCE), np.int32)))
    kernels = explain(prepared([made.node])).kernels
    attention = [one for one in kernels if one.step.lowered.choice.startswith("few queries")]
    assert sum(len(one.launches) for one in attention) == decoder_model.LAYERS
    powers = [one for one in kernels if any("exp2" in line.does for line in one.nodes) and one not in attention]
    # No softmax has a kernel by itself.
    assert not any("max over" in line.does for one in powers for line in one.nodes)
