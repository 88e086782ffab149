"""hereish: report roughly where somebody is, for a whole day, within a privacy budget."""

from hereish import _former_names
from hereish.core.batch import sanitize
from hereish.core.batch_results import Sanitized
from hereish.core.budget import (
    AlwaysNoise,
    Bound,
    BudgetManager,
    Constants,
    FixedRate,
    FixedUtility,
    Plan,
    budget_manager,
)
from hereish.core.decision import Decision, LaplaceTest, Question, TestThenNoise, closeness_test
from hereish.core.ensemble import Ensemble
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.manhattan import Manhattan
from hereish.core.mechanism import (
    DoesNotPay,
    DoesNotPayOffWarning,
    PredictiveMechanism,
    fixed_rate,
    fixed_utility,
    independent,
)
from hereish.core.mobility import Mobility
from hereish.core.mobility_model import MobilityModel
from hereish.core.noise_first import NoiseFirst
from hereish.core.pacing import Paced, Quiet, Steady, Tolerance
from hereish.core.places import PlaceMemory
from hereish.core.prediction import Parrot, Past, Prediction, Tracker, lift, prediction
from hereish.core.presets import PresetNumbers, steady, whole_day
from hereish.core.prior import Prior
from hereish.core.privacy import Privacy
from hereish.core.randomness import KeyedDraws, SecureDraws, SeededDraws
from hereish.core.remap import PriorRemap, Remap
from hereish.core.rolling import Days, Hours, Rolling
from hereish.core.run import Run
from hereish.core.session import Report, Session, WindowBudget
from hereish.core.settings import MechanismSettings
from hereish.core.skip import SkipBySpeed, SkipRule, skip_rule
from hereish.core.spaces import Coordinate, Line, Plane, Space, Sphere
from hereish.core.types import Kind
from hereish.core.vector import Vector
from hereish.core.windows import Day, Every, Forever, Limit, Month, Nested, NoReset, Window
from hereish.errors import (
    BudgetExhausted,
    BudgetExhaustedError,
    HereishError,
    ParameterError,
    PartError,
    PointError,
    StateError,
)

_former_names.install()

__version__ = "0.1.0"

__all__ = [
    "AlwaysNoise",
    "Bound",
    "BudgetExhausted",
    "BudgetExhaustedError",
    "BudgetManager",
    "Constants",
    "Coordinate",
    "Day",
    "Days",
    "Decision",
    "DoesNotPay",
    "DoesNotPayOffWarning",
    "Ensemble",
    "Every",
    "Filter",
    "FixedRate",
    "FixedUtility",
    "Forever",
    "HereishError",
    "Hours",
    "KeyedDraws",
    "Kind",
    "LaplaceTest",
    "Limit",
    "Line",
    "Linear",
    "Manhattan",
    "MechanismSettings",
    "Mobility",
    "MobilityModel",
    "Month",
    "Nested",
    "NoReset",
    "NoiseFirst",
    "Paced",
    "ParameterError",
    "Parrot",
    "PartError",
    "Past",
    "PlaceMemory",
    "Plan",
    "Plane",
    "PointError",
    "Prediction",
    "PredictiveMechanism",
    "PresetNumbers",
    "Prior",
    "PriorRemap",
    "Privacy",
    "Question",
    "Quiet",
    "Remap",
    "Report",
    "Rolling",
    "Run",
    "Sanitized",
    "SecureDraws",
    "SeededDraws",
    "Session",
    "SkipBySpeed",
    "SkipRule",
    "Space",
    "Sphere",
    "StateError",
    "Steady",
    "TestThenNoise",
    "Tolerance",
    "Tracker",
    "Vector",
    "Window",
    "WindowBudget",
    "budget_manager",
    "closeness_test",
    "fixed_rate",
    "fixed_utility",
    "independent",
    "lift",
    "prediction",
    "sanitize",
    "skip_rule",
    "steady",
    "whole_day",
]
