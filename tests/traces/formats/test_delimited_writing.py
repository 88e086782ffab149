"""CSV files are written, and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish.errors import ParameterError
from hereish.traces.table import Ids, ReleasedRows
from tests.support.csv_samples import HEADER, QUICK, ROW, csv_of, one, read, released, written


def test_what_is_written_is_plain(tmp_path: Path) -> None:
    batch = one(
        tmp_path,
        "who,trip,t,lat,lon,note,speed\n"
        'a b,1,2024-05-01T08:00:00Z,60.17,24.94,"x, y",88\n'
        "=1+1,2,2024-05-01T08:00:00.25Z,-0.1,1e-7,,99\n",
        user="who",
        keep=("note",),
    )
    kind = np.array([2, 0], dtype=np.uint8)
    out = csv_of([released(batch, kind=kind, cost=np.array([0.1, 0.0]))], batch.layout)
    assert out.decode() == (
        "who,trip,t,lat,lon,kind,cost,note\n"
        'a b,1,2024-05-01T08:00:00Z,60.17,24.94,untested,0.1,"x, y"\n'
        "=1+1,2,2024-05-01T08:00:00.25Z,-0.1,1e-07,hard,0.0,\n"
    )


def test_columns_are_those_of_the_first_rows(tmp_path: Path) -> None:
    batch = one(tmp_path, HEADER + ROW)
    assert csv_of([]) == b"time,lat,lon,kind,cost\n"
    alone = csv_of([released(batch, user=None)])
    assert alone.splitlines()[0] == b"time,lat,lon,kind,cost"
    lines = csv_of([released(batch), released(batch, user=None)]).decode().splitlines()
    assert lines == [
        "user,time,lat,lon,kind,cost",
        "anna,2024-05-01T08:00:00Z,60.17,24.94,hard,0.001",
        ",2024-05-01T08:00:00Z,60.17,24.94,hard,0.001",
    ]


def test_kept_values_of_other_kinds_are_written_as_they_read(tmp_path: Path) -> None:
    batch = one(tmp_path, HEADER + ROW)
    kept = {
        "day": np.array(["2024-05-01T01:02:03"], dtype="datetime64[ns]"),
        "n": np.array([7]),
        "nothing": np.array([None], dtype=object),
    }
    line = csv_of([released(batch, kept=kept)]).decode().splitlines()[1]
    assert line.endswith("hard,0.001,2024-05-01T01:02:03.000000000,7,")


def test_a_kept_column_never_stands_in_for_a_released_one(tmp_path: Path) -> None:
    batch = one(tmp_path, HEADER + ROW)
    for name in ("lat", "time", "cost"):
        with pytest.raises(ParameterError, match=name):
            csv_of([released(batch, kept={name: batch.lat})])


def test_an_id_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    batch = one(tmp_path, HEADER + ROW)
    ids = Ids(np.zeros(1, dtype=np.int64), ["a\ud800"])
    assert b"a\\ud800," in csv_of([released(batch, user=ids)])


IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: text.strip()
)


INSTANTS = st.integers(-2_000_000_000_000_000, 4_000_000_000_000_000)


PLACE = st.floats(-180, 180)


@QUICK
@given(st.lists(st.tuples(IDS, IDS, INSTANTS, PLACE, PLACE, st.text("a,;\"'\r\n\t =")), min_size=1))
def test_whatever_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int, float, float, str]]
) -> None:
    users, traces, at_us, lat, lon, notes = zip(*rows, strict=True)
    count = len(rows)
    out = ReleasedRows(
        np.array(at_us, dtype=np.int64),
        np.array(lat),
        np.array(lon),
        np.zeros(count, dtype=np.uint8),
        np.ones(count),
        Ids.of(users),
        Ids.of(traces),
        {"note": np.array([*notes, None], dtype=object)[:-1]},
    )
    path = written(tmp_path_factory.getbasetemp(), csv_of([out]), "round.csv")
    (back,) = read(path, keep=("note",))
    assert not back.fault.any()
    assert back.user is not None
    assert back.trace is not None
    assert back.user.values() == list(users)
    assert back.trace.values() == list(traces)
    assert back.at_us.tolist() == list(at_us)
    assert back.lat.tolist() == list(lat)
    assert back.lon.tolist() == list(lon)
    assert back.kept["note"].tolist() == list(notes)
