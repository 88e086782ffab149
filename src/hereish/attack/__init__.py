"""What an observer learns from releases: the strongest attacks that we know how to make.

The observer knows the mechanism, its settings and every release, and nothing secret. `replay` turns
releases into evidence; `smooth`, `find_place`, `find_stays` and `Pasts` are the attacks, and
`attack` makes all of them. `from_noise` and `learn_noise` do the same for noises of others.
"""

from hereish.attack.callables import LearntNoise, learn_noise
from hereish.attack.findings import AttackOptions, Findings, Task, attack, attack_many
from hereish.attack.home import NIGHT, WORK, HabitualPlace, Hours, find_place, geometric_median
from hereish.attack.identity import Pasts
from hereish.attack.movement import Movement, fit_movement
from hereish.attack.observations import Observations, from_noise, promised_log_odds
from hereish.attack.replay import Releases, SettingsMismatchError, replay
from hereish.attack.smoothing import Smoothed, smooth
from hereish.attack.stays import StayRules, Stays, find_stays

__all__ = [
    "NIGHT",
    "WORK",
    "AttackOptions",
    "Findings",
    "HabitualPlace",
    "Hours",
    "LearntNoise",
    "Movement",
    "Observations",
    "Pasts",
    "Releases",
    "SettingsMismatchError",
    "Smoothed",
    "StayRules",
    "Stays",
    "Task",
    "attack",
    "attack_many",
    "find_place",
    "find_stays",
    "fit_movement",
    "from_noise",
    "geometric_median",
    "learn_noise",
    "promised_log_odds",
    "replay",
    "smooth",
]
