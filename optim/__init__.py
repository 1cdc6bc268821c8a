"""Optimisers and schedules of learning rates, with PyTorch's names: `from ringup import optim`."""

from ringup.optim import lr_scheduler as lr_scheduler
from ringup.optim.adam import Adam as Adam
from ringup.optim.adam import Adamax as Adamax
from ringup.optim.adam import AdamW as AdamW
from ringup.optim.adam import NAdam as NAdam
from ringup.optim.adam import RAdam as RAdam
from ringup.optim.adaptive import Adadelta as Adadelta
from ringup.optim.adaptive import Adagrad as Adagrad
from ringup.optim.adaptive import RMSprop as RMSprop
from ringup.optim.optimizer import Optimizer as Optimizer
from ringup.optim.optimizer import deferred as deferred
from ringup.optim.sgd import SGD as SGD
from ringup.optim.sgd import Lion as Lion
from ringup.optim.whole import LAMB as LAMB
from ringup.optim.whole import Muon as Muon
