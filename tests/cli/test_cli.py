"""The command line: every command once, exit statuses, and one clear message for each wrong input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsor.cli import main
from netsor.cli import settings as arguments
from netsor.cli.problems import UsageError

TINY = """program tiny
width n
data x
W : A(n, x) var 1
v : G(n) var 1 readout
h := W @ x
y := relu(h)
output v . y
"""

HEAD = """import netsor as ns

p = ns.Program("wrong")
n, m = p.width("n"), p.width("m")
x = p.data("x")
W = p.matrix("W", n, x)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own, with data for programs of one input."""
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.random.default_rng(0).standard_normal((4, 3)))
    np.save("Y.npy", np.random.default_rng(1).standard_normal((2, 3)))
    Path("tiny.netsor").write_text(TINY, encoding="utf-8")
    return tmp_path


def python(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


class Run:
    """Exit status and output of one command."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        code = main(argv)
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


# ---------------------------------------------------------------- check


def test_check(run: Run) -> None:
    code, out, err = run("check", "mlp")
    assert (code, err) == (0, "")
    assert "bp_like" in out and "gia_valid" in out


def test_check_formats(run: Run) -> None:
    wrong = python("wrong.py", HEAD + 'g = p.vector("g", m)\ny = p.let("y", W @ x + g)\n')
    assert run("check", "mlp", "--format", "concise")[:2] == (0, "")
    code, out, _ = run("check", wrong, "--format", "concise")
    assert code == 1
    assert out.startswith("wrong.py:8:16: NT101 width mismatch")
    code, out, _ = run("check", wrong, "--format", "github")
    assert (code, out.split(",")[0]) == (1, "::error file=wrong.py")
    code, out, _ = run("check", wrong, "--format", "sarif")
    assert (code, json.loads(out)["runs"][0]["results"][0]["ruleId"]) == (1, "NT101")


def test_check_json(run: Run) -> None:
    code, out, _ = run("check", "mlp", "--format", "json")
    (found,) = json.loads(out)
    assert (code, found["program"], found["verdict"]["bp_like"], found["diagnostics"]) == (0, "mlp", True, [])


def test_json_is_printed_in_every_case(run: Run) -> None:
    code, out, err = run("check", "absent.netsor", "--format", "json")
    (found,) = json.loads(out)
    assert (code, found["file"], found["verdict"]["well_typed"]) == (2, "absent.netsor", None)
    assert found["diagnostics"][0]["message"] in err
    wrong = python("wrong.py", HEAD + "y = x @ x\n")
    code, out, _ = run("check", wrong, "mlp", "--format", "json")
    first, second = json.loads(out)
    assert (code, first["diagnostics"][0]["code"], second["program"]) == (1, "NT102", "mlp")
    assert first["verdict"]["well_typed"] is False
    assert first["diagnostics"][0]["location"] == {"file": "wrong.py", "line": 7, "column": 5}


def test_check_of_nothing(run: Run) -> None:
    """An empty listing, one that only declares, and a Program without lines are unread: NT011, status 2."""
    for name, text in (
        ("empty.netsor", ""), ("width.netsor", "program p\nwidth n\n"),
        ("none.py", "import netsor as ns\np = ns.Program('p')\n"),
    ):  # fmt: skip
        code, out, _ = run("check", python(name, text), "--format", "concise")
        assert code == 2 and "NT011" in out


def test_check_collects_what_is_wrong_with_a_listing(run: Run) -> None:
    """A name that is not defined does not hide the widths that do not fit."""
    text = "width n, m\nW : A(n, m)\nu : G(n)\ny := W @ q\nz := W @ u\n"
    code, out, _ = run("check", python("two.netsor", text), "--format", "concise")
    assert code == 1
    assert out.splitlines()[-1] == "2 errors in 1 program of 1 file"
    assert [row.split(" ")[:2] for row in out.splitlines()[:-1]] == [
        ["two.netsor:4:10:", "NT103"],
        ["two.netsor:5:1:", "NT101"],
    ]


def test_check_takes_all_programs_of_a_python_file(run: Run) -> None:
    text = """import netsor as ns
from netsor.programs import mlp

print("not part of the output")
first = mlp(depth=1)
again = first

@ns.program
def second(depth=2):
    return mlp(depth=depth)

def not_declared():
    raise RuntimeError
"""
    code, out, err = run("check", python("many.py", text), "--format", "json")
    assert (code, len(json.loads(out)), err) == (0, 2, "not part of the output\n")
    code, out, _ = run("check", "many.py:second", "--set", "depth=3", "--format", "json")
    assert (code, json.loads(out)[0]["program"]) == (0, "mlp")
    code, _, err = run("show", "many.py")
    assert code == 2
    assert "2 programs: first, second" in err and "many.py:first" in err
    code, _, err = run("show", "many.py:third")
    assert (code, "has no third" in err) == (2, True)


def test_the_worst_status_is_the_exit_status(run: Run) -> None:
    wrong = python("wrong.py", HEAD + "y = x @ x\n")
    assert run("check", "mlp", wrong)[0] == 1
    assert run("check", "absent.netsor", wrong, "mlp")[0] == 2


def test_strict_makes_errors_of_warnings(run: Run) -> None:
    assert run("check", "mlp", "--set", "phi=step")[0] == 0
    assert run("check", "mlp", "--set", "phi=step", "--strict")[0] == 1


# ---------------------------------------------------------------- the other commands


def test_show(run: Run) -> None:
    code, out, _ = run("show", "mlp", "--set", "depth=1")
    assert code == 0
    assert out.startswith("program mlp\nwidth n\ndata x\n")
    assert "\nh1 := W1 @ x\n" in out
    Path("mlp.netsor").write_text(out, encoding="utf-8")
    assert run("show", "mlp.netsor") == (0, out, "")


def test_show_formal_and_mermaid(run: Run) -> None:
    code, out, _ = run("show", "mlp", "--formal")
    assert (code, "W1" in out) == (0, True)
    code, out, _ = run("show", "mlp", "--mermaid")
    assert (code, out.split()[0] in ("flowchart", "graph")) == (0, True)


def test_explain(run: Run) -> None:
    code, out, _ = run("explain", "nt201")
    assert (code, out.startswith("NT201")) == (0, True)
    code, _, err = run("explain", "NT999")
    assert (code, "no finding has the code NT999" in err) == (2, True)


@pytest.mark.parametrize("form", ["text", "latex", "markdown"])
def test_derive(run: Run, form: str) -> None:
    code, out, err = run("derive", "mlp", "--format", form)
    assert (code, err) == (0, "")
    assert out.strip()


def test_derive_structure(run: Run) -> None:
    code, out, err = run("derive", "mlp", "--structure")
    assert (code, err) == (0, "")
    assert out.strip()


def test_compile(run: Run) -> None:
    code, out, _ = run("compile", "tiny.netsor", "-o", "tiny_kernel.py")
    assert (code, out) == (0, "")
    code, out, _ = run("compile", "tiny.netsor")
    assert (code, out) == (0, Path("tiny_kernel.py").read_text(encoding="utf-8"))
    script = "import numpy, torch, tiny_kernel; print(tiny_kernel.ntk(torch.as_tensor(numpy.load('X.npy'))).shape)"
    done = process(sys.executable, "-c", script)
    assert (done.returncode, done.stdout.strip()) == (0, "torch.Size([4, 4])"), done.stderr


def test_kernel(run: Run) -> None:
    code, out, _ = run("kernel", "tiny.netsor", "--x", "X.npy", "--x2", "Y.npy", "--get", "nngp,ntk,terms,y", "-o", "K")
    assert code == 0
    assert out.splitlines() == ["nngp [4, 2]", "ntk [4, 2]", "y [4, 2]", "terms.W [4, 2]", "terms.v [4, 2]"]
    with np.load("K") as found:
        arrays = {name: found[name] for name in found.files}
    assert set(arrays) == {"nngp", "ntk", "terms.W", "terms.v", "y"}
    assert {a.shape for a in arrays.values()} == {(4, 2)}
    np.testing.assert_allclose(arrays["terms.W"] + arrays["terms.v"], arrays["ntk"], rtol=1e-12)
    x, y = np.load("X.npy"), np.load("Y.npy")
    norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)
    angle = np.arccos(x @ y.T / norms)
    nngp = norms * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi * 3)
    np.testing.assert_allclose(arrays["nngp"], nngp, rtol=1e-12)
    np.testing.assert_allclose(arrays["ntk"], nngp + x @ y.T / 3 * (np.pi - angle) / (2 * np.pi), rtol=1e-12)


def test_kernel_of_an_archive_and_in_float32(run: Run) -> None:
    np.savez("named.npz", x=np.load("X.npy"))
    np.savez("nameless.npz", np.load("X.npy"))
    for file in ("named.npz", "nameless.npz"):
        assert run("kernel", "mlp", "--x", file, "--get", "ntk", "--dtype", "float32", "-o", "K.npz", "--force")[0] == 0
        with np.load("K.npz") as found:
            assert (found.files, found["ntk"].dtype, found["ntk"].shape) == (["ntk"], np.float32, (4, 4))


def test_an_output_that_is_a_device_is_written_to(run: Run) -> None:
    code, _, err = run("compile", "mlp", "-o", "/dev/null")
    assert code == 0, err
    assert not Path("/dev/null").is_file()


def test_simulate(run: Run) -> None:
    code, out, _ = run("simulate", "tiny.netsor", "--x", "X.npy", "--widths", "16,64", "--seeds", "3", "--json")
    found = json.loads(out)
    assert (code, found["widths"], found["seeds"]) == (0, [16, 64], 3)
    assert set(found["deviation"]) >= {"nngp", "ntk"}


def test_simulate_tests_the_convergence(run: Run) -> None:
    command = ("simulate", "tiny.netsor", "--x", "X.npy", "--seeds", "3", "--widths")
    found = json.loads(run(*command, "16,32,64", "--json")[1])["convergence"]
    assert found.keys() == {"nngp", "ntk"} and found["ntk"].keys() == {"slope", "slope_error", "z", "p", "verdict"}
    assert "|z|" in run(*command, "16,32,64")[1] and "|z|" not in run(*command, "16,32")[1]


def test_simulate_draws(run: Run) -> None:
    pytest.importorskip("matplotlib")
    command = ("simulate", "mlp", "tiny.netsor", "--x", "X.npy", "--widths", "16,32", "--seeds", "2")
    code, out, _ = run(*command, "--plot", "out.png")
    assert (code, "width" in out) == (0, True)
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = run(*command, "--plot", "out.nonsense")
    assert (code, "out.nonsense" in err) == (2, True)


def test_limit(run: Run) -> None:
    code, out, err = run("limit", "mlp", "--x", "X.npy")
    assert (code, bool(out.strip())) == (0, True), err


def test_train(run: Run) -> None:
    np.save("targets.npy", np.array([1.0, -1.0, 0.5, 0.0]))
    command = ("train", "mlp", "--set", "phi=tanh", "--set", "depth=1", "--x", "X.npy", "--y", "targets.npy", "--lr")
    code, out, err = run(*command, "0.5", "--steps", "1", "--test", "X.npy", "--widths", "16", "--seeds", "2", "--json")
    found = json.loads(out)
    assert (code, np.shape(found["outputs"]), np.shape(found["losses"])) == (0, (2, 8), (2,)), err
    assert np.shape(found["finite"]["16"]) == (2, 2)
    code, out, _ = run(*command, "0.5", "--steps", "1", "--widths", "16", "--seeds", "2")
    assert (code, "n = 16" in out, len(out.splitlines())) == (0, True, 4)
    code, out, _ = run(*command, "0.5", "--steps", "1", "--widths", "16", "--seeds", "1", "--kernels", "0,1", "--json")
    kernels = json.loads(out)["kernels"]
    assert (code, np.shape(kernels["ntk[1]"]), np.shape(kernels["features_alignment[0]"])) == (0, (4, 4), ())
    for wrong in (
        ("fast", "--steps", "1"), ("0.5", "--steps", "-1"), ("-1", "--steps", "1"), ("nan", "--steps", "1"),
        ("0.5", "--steps", "1", "--kernels", "2"), ("0.5", "--steps", "1", "--kernels", "last"),
        ("0.5", "--steps", "1", "--test", "targets.npy"), ("0.5", "--steps", "1", "--loss", "cross-entropy"),
    ):  # fmt: skip
        code, out, err = run(*command, *wrong)
        assert (code, out, "Traceback" in err) == (2, "", False)


def process(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, **options)


@pytest.mark.slow
def test_demo() -> None:
    pytest.importorskip("sklearn")
    done = process(sys.executable, "-m", "netsor", "demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    words = done.stdout.split()
    assert float(words[words.index("accuracy") + 1]) > 0.98
    assert "program mlp" in done.stdout and "relative deviation" in done.stdout


# ---------------------------------------------------------------- wrong inputs: one clear message each


def refused(run: Run, code: int, argv: list[str], *words: str) -> None:
    actual, out, err = run(*argv)
    text = out + err
    assert actual == code, text
    for word in words:
        assert word in text, text


def test_width_mismatch(run: Run) -> None:
    wrong = python("wrong.py", HEAD + 'g = p.vector("g", m)\ny = p.let("y", W @ x + g)\n')
    refused(
        run, 1, ["check", wrong], "wrong.py:8:16: NT101", "width n", "width m", 'p.let("y", W @ x + g)', "^^^^^^^^^"
    )


def test_vector_times_vector(run: Run) -> None:
    wrong = python("wrong.py", HEAD + 'h = p.let("h", W @ x)\nh @ h\n')
    refused(run, 1, ["check", wrong], "wrong.py:8:1: NT102", "h @ h", "^^^^^", "ns.dot")


def test_undefined_name_in_a_listing(run: Run) -> None:
    wrong = python("wrong.netsor", TINY.replace("W @ x", "Q @ x"))
    refused(run, 1, ["check", wrong], "wrong.netsor:6:6: NT1", "Q", "h := Q @ x", "^")


def test_readout_with_nonzero_mean(run: Run) -> None:
    _, text, _ = run("show", "mlp")
    wrong = python("wrong.netsor", text.replace("v : G(n) var 1", "v : G(n) mean 1 var 1"))
    refused(run, 1, ["check", wrong], "wrong.netsor", "mean", "v")
    refused(run, 1, ["kernel", wrong, "--x", "X.npy", "-o", "K.npz"], "not compiled", "mean", "v")


def test_method_and_error_of_what_is_not_exact(run: Run) -> None:
    code, out, _ = run("kernel", "mlp", "--set", "phi=tanh", "--x", "X.npy", "-o", "K.npz")
    assert (code, out.splitlines()[:2]) == (0, ["nngp [4, 4]", "ntk [4, 4]"])
    assert out.splitlines()[2].startswith("method hermite")
    assert ", error " in out.splitlines()[2]


def test_super_gaussian_function(run: Run) -> None:
    wrong = python("wrong.netsor", TINY.replace("relu(h)", "exp(h^2)"))
    refused(
        run, 1, ["check", wrong, "--strict"], "wrong.netsor:7:1: NT302", "y := exp(h^2)", "not polynomially bounded"
    )


def test_data_of_the_wrong_rank(run: Run) -> None:
    np.save("cube.npy", np.zeros((2, 3, 4)))
    refused(run, 2, ["kernel", "mlp", "--x", "cube.npy", "-o", "K.npz"], "NT6", "x", "[sample, feature]")


def test_nan_names_the_sample(run: Run) -> None:
    x = np.load("X.npy")
    x[2, 1] = np.nan
    np.save("nan.npy", x)
    refused(run, 2, ["kernel", "mlp", "--x", "nan.npy", "-o", "K.npz"], "NT6", "sample 2")


def test_data_of_different_features(run: Run) -> None:
    np.save("five.npy", np.zeros((2, 5)))
    refused(run, 2, ["kernel", "mlp", "--x", "X.npy", "--x2", "five.npy", "-o", "K.npz"], "NT6", "3", "5")


def test_device_that_does_not_exist(run: Run) -> None:
    refused(run, 2, ["kernel", "mlp", "--x", "X.npy", "--device", "cuda:99", "-o", "K.npz"], "NT6", "cuda:99")
    refused(run, 2, ["kernel", "mlp", "--x", "X.npy", "--device", "abacus", "-o", "K.npz"], "NT6", "abacus")


def test_unknown_vector(run: Run) -> None:
    refused(run, 2, ["kernel", "mlp", "--x", "X.npy", "--get", "x7", "-o", "K.npz"], "x7")


def test_not_a_program(run: Run) -> None:
    Path("noise.netsor").write_bytes(bytes(range(256)))
    refused(run, 2, ["check", "noise.netsor"], "noise.netsor", "UTF-8")
    refused(run, 2, ["check", python("prose.txt", "Dear reader,\nthis is no program.\n")], "prose.txt:1", "NT0")
    refused(run, 2, ["check", python("syntax.py", "p = (\n")], "syntax.py:1:5", "not a Python program")
    refused(run, 2, ["check", python("empty.py", "x = 1\n")], "empty.py has no program")
    refused(run, 2, ["check", "empty.py:x"], "int, not a program")
    refused(
        run, 2, ["check", python("raises.py", "def f():\n    return 1 / 0\nf()\n")], "raises.py:2:5", "ZeroDivision"
    )
    refused(run, 2, ["check", python("exits.py", "raise SystemExit(3)\n")], "exits.py ends the process")
    refused(run, 2, ["check", python("other.py", "def f():\n    return 1\n") + ":f"], "f returns int, not a Program")
    refused(run, 2, ["show", "."], "cannot be read")
    refused(run, 2, ["check", "mpl"], "neither a file nor a built-in program", "did you mean mlp?")
    refused(run, 2, ["check", "absent.py"], "there is no file absent.py")


def test_arrays_that_cannot_be_read(run: Run) -> None:
    kernel = ["kernel", "mlp", "-o", "K.npz", "--x"]
    refused(run, 2, [*kernel, "absent.npy"], "there is no file absent.npy")
    refused(run, 2, [*kernel, "tiny.netsor"], "tiny.netsor cannot be read", "NumPy")
    np.save("words.npy", np.array(["a", "b"]))
    refused(run, 2, [*kernel, "words.npy"], "words.npy", "not real numbers")
    np.save("objects.npy", np.array([None, 1], dtype=object), allow_pickle=True)
    refused(run, 2, [*kernel, "objects.npy"], "objects.npy cannot be read")
    np.savez("two.npz", x=np.zeros((2, 3)), y=np.zeros((2, 3)))
    refused(run, 2, [*kernel, "two.npz"], "NT6", "unknown", "y")


def test_places_that_cannot_be_written(run: Run) -> None:
    refused(run, 2, ["kernel", "mlp", "--x", "X.npy", "-o", "no/K.npz"], "no/K.npz cannot be written", "no folder no")
    refused(run, 2, ["compile", "mlp", "-o", "."], ". cannot be written: it is a folder")


def test_settings(run: Run) -> None:
    refused(run, 2, ["show", "mlp", "--set", "deep=3"], "mlp has no argument deep", "depth=2")
    refused(run, 2, ["show", "mlp", "--set", "depth"], "--set takes name=value")
    refused(run, 2, ["show", "mlp", "--set", "depth=[1"], "--set depth=[1")
    refused(run, 2, ["show", "mlp", "--set", "var_w=[1, 2, 3]"], "var_w has 3 entries for 2 layers")
    refused(run, 2, ["show", "mlp", "--set", "phi=rleu"], "rleu")
    refused(run, 2, ["show", "tiny.netsor", "--set", "depth=3"], "tiny.netsor is a listing")
    given = python("given.py", "from netsor.programs import mlp\np = mlp()\ndef f(depth): return mlp(depth)\n")
    refused(run, 2, ["show", f"{given}:p", "--set", "depth=3"], "takes no --set")
    refused(run, 2, ["show", f"{given}:f"], "f needs --set depth=…")
    refused(run, 0, ["show", f"{given}:f", "--set", "depth=1"], "program mlp")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", 4), ("-0.5", -0.5), ("relu", "relu"), ('"two words"', "two words"), ("none", None), ("True", True),
        ("[relu, erf]", ["relu", "erf"]), ("[1, none]", [1, None]), ("{z: 1, 'r': 2}", {"z": 1, "r": 2}),
    ],
)  # fmt: skip
def test_values_of_settings(text: str, expected: object) -> None:
    assert arguments.parse([f"name={text}"]) == {"name": expected}


@pytest.mark.parametrize("text", ["", "1 +", "__import__('os')", "[1 for _ in x]", "2**99", "f(x)", "a.b"])
def test_values_are_never_evaluated(text: str) -> None:
    with pytest.raises(UsageError, match="the value is not a number"):
        arguments.parse([f"name={text}"])


@pytest.mark.parametrize(
    "argv",
    [
        [], ["prove", "mlp"], ["check"], ["check", "mlp", "--format", "xml"], ["kernel", "mlp", "--x", "X.npy"],
        ["kernel", "mlp", "--x", "X.npy", "-o", "K.npz", "--get", "nngp,,ntk"],
        ["simulate", "mlp", "--x", "X.npy", "--widths", "64,-1"],
        ["simulate", "mlp", "--x", "X.npy", "--seeds", "0"], ["show", "mlp", "--formal", "--mermaid"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usage(run: Run, argv: list[str]) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert "usage: netsor" in err


def test_help_and_version(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for command in ("check", "show", "derive", "compile", "kernel", "simulate", "limit", "train", "explain", "demo"):
        assert command in out
    assert run("--version")[:2] == (0, "netsor 0.1.0\n")


# ---------------------------------------------------------------- the process


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "absent.netsor", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err and err.splitlines()[-1] == "netsor: there is no file absent.netsor"


def test_an_error_of_ours_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise RuntimeError("the wheel came off\nand rolled away")

    monkeypatch.setattr("netsor.build.program.Program.__str__", fails)
    code, _, err = run("show", "mlp")
    assert code == 2
    assert err.splitlines() == ["netsor: RuntimeError: the wheel came off", "  hint: --debug shows where it was raised"]


def test_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("netsor.build.program.Program.__str__", interrupted)
    assert run("show", "mlp") == (130, "", "netsor: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="needs head")
def test_a_closed_pipe_is_no_error() -> None:
    done = process(
        "bash", "-c", f"'{sys.executable}' -m netsor show mlp --set depth=999 | head -1; exit ${{PIPESTATUS[0]}}"
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, "program mlp\n", "")


def test_check_loads_neither_torch_nor_scipy() -> None:
    script = "import sys; from netsor.cli import main; code = main(['check', 'mlp'])\n"
    script += "print(*[m for m in ('torch', 'scipy', 'matplotlib', 'tqdm') if m in sys.modules]); sys.exit(code)"
    done = process(sys.executable, "-c", script)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, ""), done.stderr


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [("netsor sim", ["simulate"]), ("netsor derive --for", ["--format"]), ("netsor derive --format la", ["latex"]),
     ("netsor check net", ["net.netsor"]), ("netsor kernel mlp --x X", ["X.npy"])],
)  # fmt: skip
def test_bash_completes(words: str, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    for name in ("net.netsor", "X.npy"):
        (tmp_path / name).touch()
    (tmp_path / "complete.sh").write_text(capsys.readouterr().out)
    given = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}"
    ask = f'source complete.sh; {given}; _shtab_netsor; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("check", "report", "--output-file", "completion"))
