"""Sources and sinks that find the package by themselves, where Spark forgets to show it.

Spark starts several Python processes for them, and each gets the names of the archives that were shipped (`shipping`).
Some look for those in the wrong folder (Spark 4.3): the one on the driver that asks a stream for its offsets looks in a
folder that nothing is put into (`streaming_job`), and over Spark Connect the tasks that read and write a stream's
partitions look in the folder above that of the session. But all get our objects pickled, from a process that has found
the archive. So the pickle says where that was, and begins with a function that is carried in it as code and needs
nothing of ours.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pyspark
from pyspark import cloudpickle

import headwater
from headwater.pipeline.versions import check_version

check_version(pyspark.__version__)


class Portable:
    """To be named first among the bases of a data source, of its readers and of its writers."""

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (archive(), cloudpickle.dumps((type(self), self.__dict__)))  # type: ignore[no-untyped-call]


def archive() -> str | None:
    """The zip from which the package was imported, if it was from one."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(headwater.__file__)))
    return folder if folder.endswith(".zip") else None


def arrive(archive: str | None, pickled: bytes) -> object:
    """The object again. This is pickled as code, so it may name nothing of this module."""
    import os
    import pickle
    import sys

    if archive is not None:
        folder, name = os.path.split(archive)
        session = os.path.basename(folder)
        here = [os.path.dirname(each) for each in sys.path if os.path.basename(each) == name]
        for each in (archive, *(os.path.join(above, session, name) for above in here)):
            if os.path.exists(each) and each not in sys.path:
                sys.path.append(each)
    kind, state = pickle.loads(pickled)
    made: object = kind.__new__(kind)
    made.__dict__.update(state)
    return made


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
