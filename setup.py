"""Compiles the hot modules with mypyc; installs them as plain Python when that is not possible.

The install never fails for want of a compiler: when mypyc or the C compiler says no, the wheel holds the Python files
alone and a line says so. `headwater version` tells which one it was. HEADWATER_PURE=1 asks for plain Python.
Editable installs are plain too, so that no binaries land in the source tree. Everything else about the package is in
pyproject.toml, and the list of modules in src/headwater/build_info.py.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/headwater")
# C of our own, each left out where it cannot be built: the fast ways of waiting, receiving and sending, of passing
# on and of TLS. No headers but Python's.
IN_C = [
    Extension("headwater.node.plane.events", [str(PACKAGE / "node/plane/events.c")], optional=True),
    Extension("headwater.node.proxy.passing", [str(PACKAGE / "node/proxy/passing.c")], optional=True),
    Extension(
        "headwater.node.transports.openssl",
        [str(PACKAGE / "node/transports/openssl.c")],
        libraries=["dl", "pthread"],
        optional=True,
    ),
]
COMMANDS_THAT_COMPILE = {"bdist_wheel", "build", "build_ext", "install"}
# mypyc indents what it writes ever more, and gcc's warning about misleading indentation (of -Wall, one of Python's own
# flags) reads so large a file again and again: more than half of the time, for nothing. Hidden symbols
# cannot be replaced from outside, so that calls between modules are direct, or inlined. mypyc makes errors of warnings,
# but what another compiler thinks of generated code is no reason to do without it.
FLAGS = ["-Wno-misleading-indentation", "-fvisibility=hidden", "-Wno-error"]


def notice(text: str) -> None:
    """scripts/ look for this prefix in the log of an install."""
    print(f"headwater build: {text}", file=sys.stderr, flush=True)


def extensions() -> list[Extension]:
    """What mypyc makes of the hot modules: one library that holds them all, so that calls between them stay direct,
    and a small entry for each; nothing when they are to stay plain."""
    if not COMMANDS_THAT_COMPILE.intersection(sys.argv):
        return []
    if os.environ.get("HEADWATER_PURE", "") not in ("", "0"):
        notice("HEADWATER_PURE is set, so the hot modules are installed as plain Python")
        return []
    listed = runpy.run_path(str(PACKAGE / "build_info.py"))["compiled_sources"](PACKAGE)
    sources = [str(path) for path in listed]
    try:
        from mypyc.build import mypycify

        # Other modules are read for their types alone: what they import need not be installed while building.
        made: list[Extension] = mypycify(
            ["--config-file=", "--follow-imports=silent", *sources], opt_level="3", group_name="headwater"
        )
    except (Exception, SystemExit) as error:  # mypyc exits when it finds a type error
        notice(f"mypyc failed ({error}), so the hot modules are installed as plain Python")
        return []
    for extension in made:
        extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS]
    return [*made, *IN_C]


class OptionalBuildExt(build_ext):
    """Builds all extensions or none of them, the small ones while the large one keeps a processor busy."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        try:
            super().run()
        except Exception:
            traceback.print_exc()
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            self.distribution.ext_modules = []
            notice(
                "the C compiler failed, so the hot modules are installed as plain Python, which is slower; "
                "to have them compiled install a C compiler and Python's headers (Debian: apt install gcc python3-dev)"
            )


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
