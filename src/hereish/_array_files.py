"""Files of NumPy arrays that hereish saved, read with care: they may come from anywhere."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from hereish.errors import ParameterError

# Unpacked bytes per packed byte; numbers of real files have 2 to 30. Small files may have any.
_MOST_RATIO = 250
_RATIO_FROM_BYTES = 1 << 20


def read_arrays(
    path: str | Path, names: Collection[str], most_bytes: int | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of these names in a .npz file; none if it is something else, or damaged.

    Others in it are not read. Refuses more than `most_bytes` unpacked, and what is made to fill
    the memory.
    """
    try:
        with Path(path).open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if not isinstance(held, NpzFile):
                return {}
            too_large = _is_too_large(held, names, most_bytes)
            found = [name for name in names if name in held.files]
            arrays = {} if too_large else {name: held[name] for name in found}
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception:  # noqa: BLE001  # of whatever library unpacks it, and whatever it says
        return {}
    if too_large:
        raise ParameterError(f"{path}: it unpacks to far more than such a file has; is it whole?")
    return arrays


def _is_too_large(held: NpzFile[Any], names: Collection[str], most_bytes: int | None) -> bool:
    """By what the archive says of itself: no more than that is ever unpacked."""
    infos = [] if held.zip is None else held.zip.infolist()
    files = [info for info in infos if info.filename.removesuffix(".npy") in names]
    if most_bytes is not None and sum(info.file_size for info in files) > most_bytes:
        return True
    return any(
        info.file_size > max(_RATIO_FROM_BYTES, _MOST_RATIO * info.compress_size) for info in files
    )
