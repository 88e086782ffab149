"""hereish: report roughly where somebody is, for a whole day, within a privacy budget."""

from hereish.batch import Sanitized, sanitize
from hereish.budget import AlwaysNoise, Bound, Constants, FixedRate, FixedUtility, Plan
from hereish.closeness import LaplaceTest
from hereish.errors import (
    BudgetExhausted,
    HereishError,
    ParameterError,
    PartError,
    PointError,
    StateError,
)
from hereish.mechanism import (
    DoesNotPay,
    PredictiveMechanism,
    fixed_rate,
    fixed_utility,
    independent,
)
from hereish.prediction import Parrot, Past, lift
from hereish.privacy import Privacy
from hereish.randomness import KeyedDraws, SecureDraws, SeededDraws
from hereish.run import Run
from hereish.session import Report, Session
from hereish.skip import SkipBySpeed
from hereish.spaces import Coordinate, Line, Plane, Sphere
from hereish.windows import Day, Every, NoReset

__version__ = "0.1.0"

__all__ = [
    "AlwaysNoise",
    "Bound",
    "BudgetExhausted",
    "Constants",
    "Coordinate",
    "Day",
    "DoesNotPay",
    "Every",
    "FixedRate",
    "FixedUtility",
    "HereishError",
    "KeyedDraws",
    "LaplaceTest",
    "Line",
    "NoReset",
    "ParameterError",
    "Parrot",
    "PartError",
    "Past",
    "Plan",
    "Plane",
    "PointError",
    "PredictiveMechanism",
    "Privacy",
    "Report",
    "Run",
    "Sanitized",
    "SecureDraws",
    "SeededDraws",
    "Session",
    "SkipBySpeed",
    "Sphere",
    "StateError",
    "fixed_rate",
    "fixed_utility",
    "independent",
    "lift",
    "sanitize",
]
