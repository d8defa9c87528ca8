"""Install netsor in .venv and run a job: `python3 do.py demo` or `python3 do.py test [arguments of pytest]`.

Standard library only. The virtual environment .venv beside this file has the versions that constraints-ci.txt pins and
the extras that the job needs; it is made once, and installed again when pyproject.toml or the constraints change.
"""

import hashlib
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python.exe" if os.name == "nt" else "python")
JOBS = {
    "demo": (["data"], ["-m", "netsor", "demo"]),
    "test": (["test"], ["-m", "pytest", "-n", "auto"]),
}


def main(arguments):
    """The exit status of the job."""
    if sys.version_info < (3, 11):
        return fail("netsor needs Python 3.11 or newer; this is %s (%s)" % (sys.version.split()[0], sys.executable))
    if not arguments or arguments[0] not in JOBS:
        return fail("usage: python3 do.py %s" % " | ".join(JOBS))
    extras, command = JOBS[arguments[0]]
    try:
        prepare(extras)
    except subprocess.CalledProcessError as error:
        return fail("the installation stopped with status %d; what it printed stands above" % error.returncode)
    return subprocess.call([PYTHON, *command, *arguments[1:]], cwd=ROOT)


def prepare(extras):
    """Make .venv and install the extras, unless that has been done for these very files."""
    stamp = os.path.join(VENV, "installed-" + "-".join(extras))
    wanted = digest("pyproject.toml", "constraints-ci.txt")
    if os.path.exists(stamp) and read(stamp).decode() == wanted:
        return
    if not os.path.exists(PYTHON):
        print("making .venv", flush=True)
        make_environment()
    print("installing netsor with %s (some minutes the first time)" % ", ".join(extras), flush=True)
    target = ".[%s]" % ",".join(extras)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", "constraints-ci.txt", "-e", target], cwd=ROOT, check=True)
    with open(stamp, "w") as file:
        file.write(wanted)


def make_environment():
    """A virtual environment with pip; where ensurepip is missing (python3-venv on Debian), say so."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        raise SystemExit("do.py: this Python cannot make virtual environments: install python3-venv") from None
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)


def digest(*names):
    """One number for the contents of the files."""
    total = hashlib.sha256()
    for name in names:
        total.update(read(os.path.join(ROOT, name)))
    return total.hexdigest()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def fail(message):
    print("do.py: " + message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
