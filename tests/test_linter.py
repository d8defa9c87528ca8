"""`netsor check` as a linter: which files, which findings, where to, and what is accepted."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import netsor as ns
from netsor.checker.codes.table import CODES
from netsor.checker.render import count
from netsor.cli import main

ROOT = Path(__file__).parents[1]
GOOD = """program good
width n
data x
W : A(n, x)
v : G(n) readout
h := W @ x
y := tanh(h)
output v . y
"""
JUMPS = GOOD.replace("tanh", "step").replace("good", "jumps")  # one warning, NT305
WRONG = "width n, m\nW : A(n, m)\nu : G(n)\ny := W @ q\nz := W @ u\n"  # NT103 and NT101
UNREAD = "width n\ny := relu(\n"
ACCEPT = "accept NT305 because only the NNGP kernel is used\n"
PYTHON = """from netsor.programs import mlp
first = mlp()
second = mlp(phi="step", depth=1)
"""


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs, and with what `netsor check` leaves out."""
    texts = {
        "b.netsor": GOOD, "a/jumps.netsor": JUMPS, "a/two.py": PYTHON, "c/wrong.netsor": WRONG,
        "c/other.py": "raise SystemExit  # imports nothing of ours\n", ".hidden/x.netsor": UNREAD,
        "c/.x.netsor": UNREAD, "env/pyvenv.cfg": "", "env/lib/x.netsor": UNREAD, "empty/notes.txt": "",
        "none/none.py": "import netsor\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        code = main(("check", *argv))
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


# ---------------------------------------------------------------- which files


def test_a_folder(run: Run) -> None:
    """Sorted, twice named once checked; hidden files, virtual environments and other Python files are left out."""
    code, out, err = run(".", "b.netsor", "a", "--format", "json")
    assert (code, err) == (1, "")
    found = [(r["file"].removeprefix(f"{Path.cwd()}/"), r["program"]) for r in json.loads(out)]
    assert found[0] == ("a/jumps.netsor", "jumps") and found[3:] == [
        ("b.netsor", "good"),
        ("c/wrong.netsor", "c/wrong.netsor"),
    ]
    assert [name for _, name in found[1:3]] == ["mlp", "mlp"]


def test_a_folder_without_programs(run: Run) -> None:
    for folder in ("empty", "none"):
        code, out, err = run(folder, "--format", "json")
        assert (code, f"{folder} has no program" in err, json.loads(out)[0]["diagnostics"][0]["code"]) == (
            2,
            True,
            "NT000",
        )


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JUMPS.encode())))
    code, out, _ = run("-", "b.netsor", "--format", "concise")
    assert code == 0
    assert out.splitlines()[0].startswith("<stdin>:7:1: NT305 step(h) jumps")
    assert out.splitlines()[1] == "1 warning in 2 programs of 2 files"


# ---------------------------------------------------------------- which findings


def codes(out: str) -> list[str]:
    return re.findall(r": (NT\d+) ", out)


@pytest.mark.parametrize(
    ("options", "told", "status"),
    [
        ([], ["NT305", "NT103", "NT101"], 1),
        (["--select", "NT3"], ["NT305"], 0),
        (["--select", "nt3", "--strict"], ["NT305"], 1),
        (["--select", "NT1,NT305", "--ignore", "NT103"], ["NT305", "NT101"], 1),
        (["--ignore", "NT10", "--ignore", "NT305"], [], 0),
        (["--ignore", "NT1"], ["NT305"], 0),
    ],
)
def test_selected_codes(run: Run, options: list[str], told: list[str], status: int) -> None:
    code, out, _ = run("a/jumps.netsor", "c/wrong.netsor", "--format", "concise", *options)
    assert (codes(out), code) == (told, status)


def test_an_unknown_code_is_an_error(run: Run) -> None:
    for option in ("--select", "--ignore"):
        for wrong in ("NT9", "E501", "NT3,", ""):
            code, out, err = run("b.netsor", option, wrong)
            assert (code, out, option in err) == (2, "", True)


def test_what_could_not_be_read_is_always_told(run: Run) -> None:
    Path("unread.netsor").write_text(UNREAD, encoding="utf-8")
    code, out, _ = run("unread.netsor", "--ignore", "NT", "--format", "concise")
    assert (code, codes(out)) == (2, ["NT003"])


# ---------------------------------------------------------------- accepted findings


def test_accepted_findings_are_shown_and_do_not_count(run: Run) -> None:
    Path("a/jumps.netsor").write_text(JUMPS + ACCEPT, encoding="utf-8")
    code, out, _ = run("a/jumps.netsor", "--strict")
    assert code == 0
    assert "NT305 accepted: step(h) jumps" in out and "  accepted because only the NNGP kernel is used\n" in out
    assert re.search(r"ntk_ready +undecided", out), "the verdict stays"
    assert out.endswith("\nno errors, 1 accepted in 1 program of 1 file\n")
    (found,) = json.loads(run("a/jumps.netsor", "--format", "json")[1])[0]["diagnostics"]
    assert (found["severity"], found["accepted"]) == ("warning", "only the NNGP kernel is used")
    assert run("a/jumps.netsor", "--format", "github")[1].startswith("::notice ")
    assert codes(run("a/jumps.netsor", "--format", "concise")[1]) == []
    sarif = json.loads(run("a/jumps.netsor", "--format", "sarif")[1])["runs"][0]["results"][0]
    assert sarif["suppressions"] == [{"kind": "inSource", "justification": "only the NNGP kernel is used"}]


def test_accepted_in_python() -> None:
    """The program says what its listing says; an error that is accepted leaves the verdict."""
    p = ns.Program("p")
    n = p.width("n")
    W, u = p.matrix("W", n, n), p.vector("u", n)
    p.let("y", W.T @ ns.relu(W @ u))
    assert not ns.check(p).ok
    p.accept("NT201", because=" it is Section 6.3 ")
    p.accept("NT207", because="so is this")
    report = ns.check(p)
    assert report.ok and report.gia_valid is False
    assert str(ns.parse(str(p))) == str(p) and "\naccept NT201 because it is Section 6.3\n" in str(p)
    assert "accepted because it is Section 6.3" in report.markdown()
    assert "Accepted because it is Section 6.3" in report.latex()
    for code, because in (("NT101", "x"), ("NT299", "x"), ("NT401", " "), ("NT401", "two\nlines")):
        with pytest.raises(ns.ProgramError) as error:
            p.accept(code, because)
        assert error.value.diagnostic.code == "NT113"


def test_accepted_findings_survive_passes() -> None:
    p = ns.parse(GOOD + ACCEPT)
    made = (ns.backprop(p), ns.forward_part(ns.backprop(p)), ns.unit_variance(p), p.unroll({}), p.copy())
    assert {tuple((a.code, a.because) for a in q.accepted) for q in made} == {
        (("NT305", "only the NNGP kernel is used"),)
    }


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.text(min_size=1).filter(lambda s: s.isprintable() and s.strip()))
def test_any_reason_is_read_as_it_stands(reason: str) -> None:
    p = ns.parse(GOOD + f"accept NT305 because {reason}\n")
    assert p.accepted[0].because == reason.strip() and ns.parse(str(p)).accepted[0].because == reason.strip()


def test_accept_is_no_reserved_word() -> None:
    p = ns.parse("width n\naccept : G(n)\nbecause := tanh(accept)\naccept2 := because * accept\n" + ACCEPT)
    assert [line.out.name for line in p.lines] == ["accept", "because", "accept2"] and len(p.accepted) == 1
    assert str(ns.parse(str(p))) == str(p)


# ---------------------------------------------------------------- at data


def test_a_batch(run: Run) -> None:
    """Two inputs that are equal in one sample: `--x` gives what `ns.check(p, x=…)` gives, and names the sample."""
    text = """program two
width n
data x, y
W : A(n, x)
V : A(n, n)
v : G(n) readout
h := W @ x
g := W @ y
c := moment((h - g)^2)
d := V @ (h * c)
output v . d
""".replace("data x, y", "data x\ndata y : X(x)")
    Path("two.netsor").write_text(text, encoding="utf-8")
    x = np.random.default_rng(0).standard_normal((3, 4))
    y = x + np.array([1.0, 0.0, 1.0])[:, None]
    np.savez("xy.npz", x=x, y=y)
    (found,) = json.loads(run("two.netsor", "--x", "xy.npz", "--format", "json")[1])
    expected = ns.check(ns.parse(text), x={"x": x, "y": y})
    assert found["verdict"] == expected.verdict and found["reasons"] == expected.reasons
    code, _, err = run("b.netsor", "--x", "absent.npy")
    assert (code, "there is no file absent.npy" in err) == (2, True)
    np.save("wrong.npy", np.zeros((2, 3, 4)))
    code, _, err = run("b.netsor", "--x", "wrong.npy")
    assert (code, "NT601" in err) == (2, True)


# ---------------------------------------------------------------- output


def test_output_file(run: Run, tree: Path) -> None:
    for form in ("full", "concise", "json", "github", "sarif"):
        code, printed, _ = run(".", "--format", form)
        assert run(".", "--format", form, "--output-file", "out.txt") == (code, "", "")
        assert Path("out.txt").read_text(encoding="utf-8") == printed
    assert not list(tree.glob(".out*"))
    code, _, err = run("b.netsor", "--output-file", "no/where.txt")
    assert (code, "there is no folder no" in err) == (2, True)


def test_an_output_file_is_whole_or_unchanged(run: Run, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.txt").write_text("before", encoding="utf-8")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    code, _, err = run("b.netsor", "--output-file", "out.txt")
    assert (code, "no space" in err, Path("out.txt").read_text(encoding="utf-8")) == (2, True, "before")
    assert not list(tree.glob(".out*"))


def test_the_count(run: Run) -> None:
    code, out, _ = run("a", "c/wrong.netsor")
    assert (code, out.splitlines()[-1]) == (1, "2 errors, 2 warnings in 4 programs of 3 files")
    assert run("b.netsor")[1].endswith("\n\nno errors in 1 program of 1 file\n")
    assert run("b.netsor", "--format", "concise")[1] == ""
    assert count([], 0) == "no errors in 0 programs of 0 files"


def test_sarif_explains_its_rules(run: Run) -> None:
    rules = json.loads(run(".", "--format", "sarif")[1])["runs"][0]["tool"]["driver"]["rules"]
    assert [r["id"] for r in rules] == ["NT101", "NT103", "NT305"]
    assert all(re.fullmatch(rf"[a-z]+:\S+#{r['id'].lower()}", r["helpUri"]) and r["help"]["text"] for r in rules)


def test_explain_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--all"]) == 0
    assert re.findall(r"^(NT\d+): ", capsys.readouterr().out, re.MULTILINE) == list(CODES)
    assert main(["explain"]) == main(["explain", "NT201", "--all"]) == 2


# ---------------------------------------------------------------- the start, editors and hooks


@pytest.mark.parametrize("option", ["--version", "--help", "check --help"])
def test_help_loads_nothing(option: str) -> None:
    script = f"import sys\nfrom netsor.cli import main\nmain({option.split()})\nprint('loaded:', *sys.modules)"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=env, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "sympy", "lark", "networkx", "torch", "netsor.ir"}


def test_the_problem_matcher_reads_concise_output(run: Run) -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    task = json.loads(page.split("```json\n")[1].split("```")[0])["tasks"][0]
    pattern = re.compile(task["problemMatcher"]["pattern"]["regexp"])
    rows = run(*task["args"][1:])[1].splitlines()
    found = [m.groups()[:4] for row in rows[:-1] if (m := pattern.match(row))]
    assert len(found) == len(rows) - 1 == 4 and ("c/wrong.netsor", "4", "10", "NT103") in found
    assert pattern.match(rows[-1]) is None


def test_the_lexer_colours_listings() -> None:
    pytest.importorskip("pygments")
    from pygments.token import Keyword, Name, String, Text, Token

    from netsor.programs import BUILTIN
    from netsor.text.lexer import NetsorLexer

    lexer = NetsorLexer()
    tokens: list[tuple[object, str]] = []
    for text in [*(str(make()) for make in BUILTIN.values()), GOOD + ACCEPT]:
        tokens = list(lexer.get_tokens(text))
        assert "".join(value for _, value in tokens) == text
        assert not [value for kind, value in tokens if kind in (Text, Token.Error)]
    assert {(Keyword.Declaration, "data"), (Keyword.Type, "A"), (Name.Variable, "h"), (Name.Builtin, "tanh"),
            (Keyword.Pseudo, "readout"), (String, "only the NNGP kernel is used")} <= set(tokens)  # fmt: skip


def test_a_hostile_listing_costs_no_more_than_its_length() -> None:
    """Two thousand lines, each a function of its own, through one matrix and its transpose."""
    rows = ["width n", "data x", "U : A(n, x)", "W : A(n, n)", "v : G(n) readout", "h0 := U @ x"]
    for k in range(1000):
        unit = ("gelu", "erf", "sin", "tanh")[k % 4]
        rows += [f"y{k} := {unit}(h{k} * 0.{k + 101} + 0.{k + 307}) + 0.{k + 11} * h{k}^2",
                 f"h{k + 1} := W{'.T' * (k % 2)} @ y{k}"]  # fmt: skip
    start = time.process_time()
    assert ns.check(ns.parse("\n".join([*rows, "output v . h1000", ""]))).well_typed
    assert time.process_time() - start < 30.0  # 3 s as measured
