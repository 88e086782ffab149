"""Files of traces in, sanitised files out: read, validate, thin, release, write.

Rows go through in units of about a million, so memory does not grow with the files. Each user and
window has one budget across all of them. As long as time goes on from unit to unit, one pass over
the files is enough; otherwise they are read again for each unit, which then has all rows of some
users. What comes out does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SECURE, Draws, SeededDraws
from hereish.core.types import Floats
from hereish.errors import ParameterError, PointError
from hereish.traces.budgets import Budgets
from hereish.traces.columns import Columns
from hereish.traces.discovery import STANDARD_STREAM, Inputs, find_inputs
from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._part_file import FilePart
from hereish.traces.formats._sidecar import read_sidecar
from hereish.traces.formats.base import Source
from hereish.traces.formats.registry import recognize
from hereish.traces.guarantee import GuaranteeMetadata, describe_guarantee
from hereish.traces.job_budget import JobBudget, UserWindow, WindowCost, check_shared_budget
from hereish.traces.order import Order, check_order
from hereish.traces.parts import IndivisibleError, JoinedParts, PartSettings, find_parts
from hereish.traces.pipeline import Pipeline
from hereish.traces.reading import Progress, UsersFrom, read_valid_rows
from hereish.traces.summary import Summary
from hereish.traces.table import BATCH_ROWS, RowBatch, concat_batches
from hereish.traces.trace_numbers import UnsortedInputError
from hereish.traces.validate import DropBad, Validator, time_faults_of_batch
from hereish.traces.writing import (
    OutputOptions,
    SingleFileOutput,
    SplitBy,
    UnsortedOutputError,
    open_output,
)

# Of files that do not fit into a unit anyway, smaller ones take less memory, and so less time for
# the system to clear it. Much smaller ones find more rows out of order.
UNIT_ROWS = BATCH_ROWS // 2
_MANY_ROWS = BATCH_ROWS * 7 // 8


def sanitize_files(
    inputs: Sequence[str | Path],
    to: str | Path,
    mechanism: PredictiveMechanism,
    *,
    columns: Columns | None = None,
    users_from: UsersFrom | None = None,
    every_s: float | None = None,
    drop_bad: DropBad = False,
    seed: int | None = None,
    jobs: int = 1,
    form: str | None = None,
    to_form: str | None = None,
    order: Order = "public",
    split_by: SplitBy = "input",
    job: JobBudget | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Sanitise files, folders or globs into a file or folder that appears completely or not at all.

    Formats are recognised by the names unless `form` and `to_form` name them. `users_from` makes
    each file, or each folder, a user of its own. `every_s` takes a user's points at least so far
    apart. A row that cannot be used is an error that names file and line; `drop_bad` leaves it out
    and counts it, unless those are more than a tenth; "all" leaves out however many there are. Rows
    with the time of another in their trace are counted and left out in any case. Ids of traces
    become numbers in the order of time, unless `columns.keep_trace_names`. The mechanism's window
    says what has one budget: a user (none), a user's day, or with `EachTrace` a trace.

    Rows come out by user, trace and time, in whatever order they came in; `order="input"` keeps
    that order and so publishes it, which reveals places if rows were sorted by place. A folder has
    one file per input file, so which rows are in which file must be public, and so must the names;
    `split_by="user"` writes one file per user instead. A `job` shares its budgets with others: what
    may be spent is reserved there, and paid before the output appears.

    Guarantee: as the mechanism's, for each user, whatever the order of the rows depends on; not
    with `order="input"`, which the output says. The returned summary is not covered: it is computed
    from the true places.
    """
    check_order(order)
    columns = columns or Columns()
    found = find_inputs([str(name) for name in inputs], form, columns)
    sources = found.sources
    _check_output(str(to), sources, columns)
    if to_form is None and recognize(str(to)) is None and Path(to).suffix:
        to_form = form  # a name that tells nothing, such as out.dat
    budgets = _budgets(mechanism, job, str(to))
    # The numbers of a seed go to the rows of one unit after the other, so its units stay.
    reading = _Reading(found, columns, users_from, drop_bad, jobs, progress, seed is None)
    can_repeat = all(source.path is not None for source in sources)
    merge, by_user = not can_repeat, False
    keep_names = columns.keep_trace_names is True
    parts: Sequence[FilePart] = ()
    divisible = seed is None and job is None and users_from is None and order == "public"
    if divisible and not found.unreadable:
        # The numbers of a seed are drawn one after the other, and a ledger is asked by one process.
        parts = find_parts(sources, columns, budgets, jobs)
    while True:
        # Nothing that was begun has been seen by anybody, so it can be begun again.
        draws: Draws = SECURE if seed is None else SeededDraws(seed)
        guarantee = describe_guarantee(mechanism, draws, columns, order, every_s, job is not None)
        validator = Validator(drop_bad)
        options = OutputOptions(guarantee, split_by, order, merge)
        done: Pipeline | JoinedParts
        try:
            with open_output(str(to), sources, to_form, options) as out:
                if parts and isinstance(out, SingleFileOutput):
                    done = JoinedParts(out, sources[0], validator)
                    done.feed(
                        PartSettings(
                            *(sources[0], columns, budgets, drop_bad),
                            *(every_s, keep_names, options, jobs),
                        ),
                        parts,
                        progress,
                    )
                    done.finish()
                else:
                    paying = budgets.cleared()
                    done = Pipeline(
                        paying,
                        draws,
                        validator,
                        out,
                        every_s=every_s,
                        order=order,
                        keep_trace_names=keep_names,
                        behind=jobs > 1 and job is None,  # a ledger is asked by one thread
                    )
                    with done:
                        (reading.feed_by_user if by_user else reading.feed)(done, validator)
                        done.finish()
                    if job is not None:
                        out.before_publishing = partial(_pay, job, paying)
        except IndivisibleError:
            parts = ()
        except UnsortedOutputError:
            merge = True
        except UnsortedInputError:
            merge = by_user = True
        else:
            return _summarize(found, validator, done, guarantee, columns)
        if by_user and not can_repeat:
            raise PointError(
                "standard input has more rows than fit into memory, and not in the order of their "
                "times: sort by user and time, or save them to a file first, which can be read "
                "again; nothing was released"
            )


def _budgets(mechanism: PredictiveMechanism, job: JobBudget | None, to: str) -> Budgets:
    if job is None:
        return Budgets(mechanism)
    check_shared_budget(mechanism)
    if to == STANDARD_STREAM:
        raise ParameterError(
            "a job pays before its output appears, and standard output appears at once: name a file"
        )

    known: dict[tuple[str, int], float] = {}  # the files may be gone through again

    def granted(keys: Sequence[tuple[str, int]], at_s: Floats) -> Floats:
        new = {key: s for key, s in zip(keys, at_s.tolist(), strict=True) if key not in known}
        eps = job.reserve([UserWindow(*key, first_s) for key, first_s in new.items()])
        known.update(zip(new, eps.tolist(), strict=True))
        return np.array([known[key] for key in keys])

    return Budgets(mechanism, granted)


def _pay(job: JobBudget, budgets: Budgets) -> None:
    job.settle(WindowCost(*cost) for cost in budgets.costs())


def _check_output(name: str, sources: Sequence[Source], columns: Columns) -> None:
    if {"kind", "cost"} & set(columns.keep):
        raise ParameterError("the columns 'kind' and 'cost' are of the output; keep others")
    path = Path(name).resolve()
    paths = (source.path for source in sources if source.path is not None)
    if path.exists() and any(source.resolve() == path for source in paths):
        raise ParameterError(f"{name} is an input; name another file for the output")


@dataclass(frozen=True)
class _Reading:
    """Feeds the rows of files to a pipeline, in one pass or in several."""

    inputs: Inputs
    columns: Columns
    users_from: UsersFrom | None
    drop_bad: DropBad
    jobs: int
    progress: Progress | None
    smaller_units: bool

    def feed(self, pipeline: Pipeline, validator: Validator) -> None:
        """Rows as they come, as long as time does not go back."""
        for source, batch in self._valid_rows(validator, self.progress):
            if self.smaller_units and len(batch) > _MANY_ROWS:  # not all that there are
                pipeline.unit_rows = UNIT_ROWS
            pipeline.add(source, batch)

    def feed_by_user(self, pipeline: Pipeline, validator: Validator) -> None:
        """All rows of some users, then those of the next, in whatever order they come."""
        counts = np.zeros(0, dtype=np.int64)
        for _, batch in self._valid_rows(validator, self.progress):
            if len(batch):
                here = np.bincount(pipeline.number_users(batch), minlength=len(counts))
                here[: len(counts)] += counts
                counts = here
        groups = pipeline.divide_users(counts)
        for number, users in enumerate(groups, start=1):
            pipeline.begin_pass(users)
            progress = self._progress_of_pass(number, 1 + len(groups), validator)
            # The first pass has counted the rows that are dropped.
            again = Validator(self.drop_bad)
            for source, batch in self._valid_rows(again, progress):
                pipeline.add(source, batch)
            if (again.points, again.unreadable) != (validator.points, validator.unreadable):
                raise PointError(
                    "the files have changed while they were read, which takes several passes; "
                    "nothing was released. Wait until nobody writes to them, or copy them first"
                )
            pipeline.flush()

    def _valid_rows(
        self, validator: Validator, progress: Progress | None
    ) -> Iterator[tuple[Source, RowBatch]]:
        return read_valid_rows(
            self.inputs.sources,
            self.columns,
            validator,
            unreadable=self.inputs.unreadable,
            users_from=self.users_from,
            jobs=self.jobs,
            progress=progress,
        )

    def _progress_of_pass(self, number: int, passes: int, validator: Validator) -> Progress | None:
        report = self.progress
        if report is None:
            return None
        return lambda done, total, _: report(
            number * total + done, passes * total, validator.points
        )


def _summarize(
    inputs: Inputs,
    validator: Validator,
    done: Pipeline | JoinedParts,
    guarantee: GuaranteeMetadata,
    columns: Columns,
) -> Summary:
    counts = done.counts
    hard, easy, untested = counts.kinds.tolist()
    return Summary(
        files=len(inputs.sources),
        users=done.users,
        traces=done.traces,
        points=validator.points,
        bad=validator.dropped,
        unreadable=validator.unreadable,
        without_points=validator.without_points,
        ignored=dict(sorted(inputs.ignored.items())),
        possible_users=validator.possible_users,
        taken_as_utc=done.without_offset and columns.zone is None,
        thinned=counts.thinned,
        hard=hard,
        easy=easy,
        untested=untested,
        refused=counts.refused,
        guarantee=guarantee.statement,
        private=guarantee.private,
        prior=guarantee.prior,
        second=guarantee.second,
        displacement_mean_m=counts.displacements.mean_m,
        displacement_p90_m=counts.displacements.p90_m,
    )


def load_rows(
    names: Sequence[str],
    columns: Columns,
    form: str | None = None,
    drop_bad: DropBad = False,
    users_from: UsersFrom | None = None,
    in_order: bool = True,
) -> RowBatch:
    """All rows of some files as one batch, validated as `sanitize_files` does.

    `in_order=False` takes times as they come, such as those of an output made of several files.
    """
    validator = Validator(drop_bad)
    found = find_inputs(names, form, columns)
    rows = read_valid_rows(
        found.sources,
        columns,
        validator,
        unreadable=found.unreadable,
        users_from=users_from,
    )
    files: list[RowBatch] = []
    for source, batches in groupby(rows, lambda pair: pair[0]):
        batch = concat_batches([batch for _, batch in batches])
        if in_order:
            batch = validator.without_faults(source, batch, time_faults_of_batch(batch))
        files.append(batch)
    nameless = [batch for batch in files if batch.user is None]
    validator.check_losses(dict.fromkeys(name for one in nameless for name in one.layout.owners))
    return concat_batches(files)


def read_guarantee(name: str, form: str | None = None) -> GuaranteeMetadata | None:
    """The guarantee of a file that `sanitize_files` wrote; None if it does not say."""
    source = find_inputs([name], form).sources[0]
    if source.format.read_guarantee is not None:
        try:
            return source.format.read_guarantee(source)
        except UnreadableFileError:  # whoever reads the file itself will say so
            return None
    return read_sidecar(Path(name)) if source.format.sidecar else None
