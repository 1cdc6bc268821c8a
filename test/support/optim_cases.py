"""Optimisers and schedules whose steps PyTorch and ringup are compared in. Both are asked by the same names."""

import numpy as np

STEPS = 7
TURNS = 24

# PyTorch's class, its options
OPTIMISERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "dampened": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02, "maximize": True}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    "adam": ("Adam", {"lr": 0.05}),
    "adam decayed": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}),
    "amsgrad": ("Adam", {"lr": 0.3, "amsgrad": True, "maximize": True}),
    "adamw": ("AdamW", {"lr": 0.05}),
    "adamw amsgrad": ("AdamW", {"lr": 0.3, "amsgrad": True, "weight_decay": 0.2}),
    "adamax": ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 0.05, "weight_decay": 0.1}),
    "nadam decoupled": ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam": ("RAdam", {"lr": 0.05, "weight_decay": 0.1}),
    # trusts the squares from the sixth step on
    "radam decoupled": ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    "rmsprop": ("RMSprop", {"lr": 0.02}),
    "rmsprop centred": ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.8, "weight_decay": 0.1, "alpha": 0.9}),
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad decayed": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.01},
    ),
    "adadelta": ("Adadelta", {"lr": 1.0}),
    "adadelta decayed": ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
}

# PyTorch's class, its options; the options of another optimiser where it needs one
SCHEDULES = {
    "lambda": ("LambdaLR", {"lr_lambda": [lambda step: 0.95**step, lambda step: 1 / (1 + step)]}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda step: 0.9 + 0.01 * (step % 3)}),
    "step": ("StepLR", {"step_size": 5, "gamma": 0.3}),
    "multistep": ("MultiStepLR", {"milestones": [3, 9, 9, 15], "gamma": 0.5}),
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 6}),
    "linear": ("LinearLR", {"start_factor": 0.2, "end_factor": 0.9, "total_iters": 8}),
    "polynomial": ("PolynomialLR", {"total_iters": 9, "power": 1.7}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "cosine": ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2, "eta_min": 0.002}),
    "one cycle": ("OneCycleLR", {"max_lr": [1.0, 0.5], "total_steps": TURNS + 1}),
    "one cycle, three phases": (
        "OneCycleLR",
        {"max_lr": 1.0, "epochs": 5, "steps_per_epoch": 5, "anneal_strategy": "linear", "three_phase": True},
    ),
}
# losses of a run that stops to improve
LOSSES = [1.0, 0.9, *[0.8] * 5, 0.79999, 0.81, *[0.7] * 7, *[0.6] * 8]
PLATEAUS = {
    "relative": {"factor": 0.5, "patience": 2},
    "absolute, upwards, with a pause": {
        "mode": "max", "factor": 0.2, "patience": 1, "threshold": 0.05, "threshold_mode": "abs", "cooldown": 2,
        "min_lr": [0.01, 0.02],
    },
}  # fmt: skip


def numbers(shape, seed):
    """Return numbers between -1 and 1 that look random, the same everywhere."""
    count = int(np.prod(shape, dtype=int))
    return ((np.arange(1, count + 1) * (7919 + 2 * seed) + 104729 * seed) % 2003 / 1001.5 - 1).reshape(shape)


X, W, B = numbers((6, 3), 1), numbers((3, 2), 2), numbers((2,), 3)


def trajectory(make, optimiser, dtype):
    """Return both parameters after each of the steps. `make(array)` returns a parameter, or a constant with
    `wanted=False`.
    """
    x, w, b = make(X, dtype, wanted=False), make(W, dtype), make(B, dtype)
    stepping, found = optimiser([w, b]), []
    for _ in range(STEPS):
        stepping.zero_grad()
        ((x @ w + b).tanh() ** 2).mean().backward()
        stepping.step()
        found.append([*w.detach().numpy().ravel().tolist(), *b.detach().numpy().tolist()])
    return found


def rates(make, optim, schedule):
    """Return the rates and momenta of two groups after each step of a schedule."""
    optimiser = optim.SGD([{"params": [make(W, "float32")]}, {"params": [make(B, "float32")], "lr": 0.05}], 0.4, 0.9)
    made, found = schedule(optimiser), []
    for turn in range(TURNS):
        found.append([value for group in optimiser.param_groups for value in (group["lr"], group["momentum"])])
        optimiser.step()
        made.step(*LOSSES[turn : turn + 1] if hasattr(made, "mode") else [])
    return found


def scheduled(optim, name, options):
    """Return what makes a schedule of that class."""
    return lambda optimiser: getattr(optim.lr_scheduler, name)(optimiser, **options)


def in_turn(optim):
    """Return what makes three schedules in turn."""

    def made(optimiser):
        parts = [
            optim.lr_scheduler.LinearLR(optimiser, 0.1, total_iters=4),
            optim.lr_scheduler.ExponentialLR(optimiser, 0.9),
            optim.lr_scheduler.CosineAnnealingLR(optimiser, 6),
        ]
        return optim.lr_scheduler.SequentialLR(optimiser, parts, [4, 12])

    return made


def by_epochs(optim):
    """Return what makes restarts that are asked for parts of epochs."""

    class Parts:
        def __init__(self, optimiser):
            self.inner, self.turn = optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, 3, 2), 0

        def step(self):
            self.turn += 1
            self.inner.step(self.turn * 0.6)

    return Parts


def together(optim):
    """Return what makes two schedules that both step."""

    class Both:
        def __init__(self, optimiser):
            self.parts = [
                optim.lr_scheduler.StepLR(optimiser, 4, 0.5),
                optim.lr_scheduler.LinearLR(optimiser, 0.2, total_iters=6),
            ]

        def step(self):
            for one in self.parts:
                one.step()

    return Both
