"""Files of NumPy arrays that hereish saved, read with care: they may come from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from hereish.errors import ParameterError


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file; none if it is something else, or damaged."""
    try:
        with Path(path).open("rb") as file:
            held = np.load(file, allow_pickle=False)
            return {key: held[key] for key in held.files} if isinstance(held, NpzFile) else {}
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception:  # noqa: BLE001  # of whatever library unpacks it, and whatever it says
        return {}
