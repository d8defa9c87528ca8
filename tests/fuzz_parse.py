"""Fuzzing of `ns.parse`: every text is a program or one NetsorError, soon, and nothing of it is executed.

python tests/fuzz_parse.py --cases 20000
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import netsor as ns
from netsor import programs
from netsor.text import listing

TIME_LIMIT = 5.0  # seconds of CPU that a case may take

SAMPLE = """\
program "fuzz sample"
width n1, n2 = 2 n1
axis row, col, t, u, k = 9, j
function f(x, y) = x * sigmoid(y) + y^2 / 7 growth polynomial
function g(x) = relu(x - 0.5) + x^3 kinks [0.5]
data x[row, col]
data z[t]
W[k] : A(n1, x) var 1 multiplier 0.5 fan_in none frozen
V : A(n1, n1) var 2/3
b : G(n1) mean 0.5 var 1e-3 trainable
q[t] : G(n1) var 1 axis_cov t = [[1, 0.5], [0.5, 1]]
cov(b, q) = 0.3
c : C limit 0.25
m[t, u] : C per_sample
xw[row, col, k] := x[2 row + k, 2 col + k] where k in -1..1, -1..1 wrap
a[row, col, k] := W[k] @ xw[row, col, k]
h[row, col] := sum[k](a[row, col, k])
y[row, col] := f'1(h[row, col], b) + leaky_relu[0.2]'(h[row, col]) - tanh''(b) / sqrt(c + 1e-5)
p[t] : H(n1) := s[t - 1]
s[t] := tanh(V @ p[t] + q[t]) + place[t = 0](b)
r[u] := s[u]
w[t, u] := softmax[u](dot(s[t], r[u]), m[t, u])
o[t] := sum[u](w[t, u] * r[u])
e := max[row](mean[col](y[row, col])) + min(b, 2 * c, floor(b), log(1 + b^2)) + V.T @ s[-1] + pi
d[row: (|row| - 2)/2, j] := y[row + j, 0] where j in {-1, 0, 3} drop
i[row] := unwindow[2 row + j](d[row, j]) where j in {-1, 0, 3}
v : G(n1) var 1 readout
output v . e scale 0.5
output second = v . o[-1]
gradient h = y
returns "a c" = moment(e^2) + exp(c)
"""

PRELUDE = """\
width n1
axis row, col, t
function f(x, y) = x * sigmoid(y) + y^2 / 7
function g(x) = relu(x - 0.5) + x^3
b : G(n1) trainable
h[row, col] : G(n1)
q[t] : G(n1)
V : A(n1, n1)
c : C limit 0.25
y[row] := sum[col](h[row, col]^2)
s[t] := V @ q[t]
e := tanh(b) + s[-1]
"""

HOSTILE = (
    "__import__('os').system('touch /tmp/fuzzed')", "eval(1)", "lambda: 0", "x.__class__", "2^9^9^9", "9^9^9^9^9",
    "1e999999999", "10^100^100", "(" * 500, "[" * 500, "-" * 3000 + "1", "relu(" * 100 + "x", "((x^100)^100)^100",
    "exp(exp(exp(exp(9))))", "floor(exp(exp(9)))", "0^-1", "1/0", "sqrt(-1)", "log(0)", "tan(pi / 2)", "x^" * 400 + "x",
    "axis k = 99999999999", "where k in -1000000..1000000, -1000000..1000000", "'" * 200, "`", '"', "\\", "\x00", "∑",
    "x\u0304",
    "1" * 5000, "a" * 5000, "max(max(max(b, c), b), c)", "(b + c + 1)^99", "((b + c)^50 + 1)^50",
    "polynomial[" + "1, " * 300 + "1](b)",
    "function g(x) = relu(x^50 - 3 * x^7 + 1)", "relu(sqrt(2) + sqrt(3) - sqrt(5 + 2 * sqrt(6)))", "0.1^0.123456789",
    "123456789012345678901234567890^(1/3)", "f''''''''''(b)", "s[t - 1]", "asin(2)", "acos(b) ^ pi",
    "abs(-b) + sign(0)",
)  # fmt: skip
_WORDS = """
    program width axis data cov output gradient returns function numeric where in by wrap drop over scale var mean
    multiplier trainable frozen readout fan_in limit per_sample axis_cov parity growth kinks x b c h s t u k n1 n2 W V f
    g relu tanh moment sum max softmax place unwindow sqrt log pi A G H C X 0 1 2 -1 0.5 1e-3 1/3 := : = , . .. ( ) [ ]
    { } + - * / ^ @ .T ' | #
"""
WORDS = (*_WORDS.split(), "\n")


def corpus() -> list[str]:
    """Listings of the built-in programs with their backward passes, and one with every construct."""
    made = [SAMPLE]
    for build in programs.BUILTIN.values():
        made.append(listing(build()))
        made.append(listing(ns.backprop(build())))
    return made


# ---------------------------------------------------------------- making text


def expression(rng: random.Random, depth: int) -> str:
    """A random expression, mostly well formed."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["b", "c", "h[row, col]", "y", "2", "0.5", "1/3", "pi", "100", "s[t - 1]", "q[t]", "e", "0"])
    a, b = expression(rng, depth - 1), expression(rng, depth - 1)
    form = rng.choice([
        f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"({a}) / ({b})",
        f"({a})^{rng.choice(['2', '3', '0.5', '-1', '(1/3)', b])}",
        f"{rng.choice(['relu', 'tanh', 'erf', 'exp', 'log', 'sqrt', 'floor', 'abs', 'sign', 'g', 'sin', 'acos'])}({a})",
        f"{rng.choice(['min', 'max', 'f'])}({a}, {b})", f"moment({a})", f"V @ ({a})", f"V.T @ ({a})", f"-({a})",
        f"{rng.choice(['sum', 'mean', 'max'])}[row]({a})", f"leaky_relu[{rng.choice(['0.2', '-1', '1/3'])}]'({a})",
    ])  # fmt: skip
    return str(form)


def random_line(rng: random.Random) -> str:
    return f"new{rng.randrange(99)} := {expression(rng, rng.randrange(1, 7))}"


def random_tokens(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 60)))


def random_characters(rng: random.Random) -> str:
    return "".join(
        chr(rng.choice([rng.randrange(32, 127), rng.randrange(1, 0x3000)])) for _ in range(rng.randrange(1, 200))
    )


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randrange(1, 5)):
        text = rng.choice(MUTATIONS)(rng, text)
    return text


def _cut(rng: random.Random, text: str) -> str:
    i = rng.randrange(len(text) + 1)
    return text[:i] + text[i + rng.randrange(1, 12) :]


def _insert(rng: random.Random, text: str) -> str:
    i = rng.randrange(len(text) + 1)
    piece = rng.choice([rng.choice(WORDS), rng.choice(HOSTILE), expression(rng, 2), chr(rng.randrange(32, 0x250))])
    return f"{text[:i]}{piece}{text[i:]}"


def _word(rng: random.Random, text: str) -> str:
    words = text.split(" ")
    words[rng.randrange(len(words))] = rng.choice([*WORDS, rng.choice(HOSTILE), expression(rng, 3)])
    return " ".join(words)


def _lines(rng: random.Random, text: str) -> str:
    rows = text.split("\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    change = rng.randrange(4)
    if change == 0:
        rows[i], rows[j] = rows[j], rows[i]
    elif change == 1:
        del rows[i]
    elif change == 2:
        rows.insert(i, rows[j])
    else:
        rows.insert(
            i, rng.choice([random_line(rng), rng.choice(HOSTILE), f"new := {rng.choice(HOSTILE)}", random_tokens(rng)])
        )
    return "\n".join(rows)


MUTATIONS: tuple[Callable[[random.Random, str], str], ...] = (_cut, _insert, _word, _lines, _lines)


def texts(seed: int, count: int) -> Iterator[str]:
    """`count` texts: mutated listings, listings with random lines, random words and characters."""
    rng, base = random.Random(seed), corpus()
    yield from (f"{PRELUDE}new := {h}\n" for h in HOSTILE[:count])
    for _ in range(count - len(HOSTILE)):
        kind = rng.random()
        if kind < 0.45:
            yield mutated(rng, rng.choice([SAMPLE, rng.choice(base)]))
        elif kind < 0.85:
            yield PRELUDE + "\n".join(random_line(rng) for _ in range(rng.randrange(1, 4)))
        else:
            yield rng.choice([random_tokens, random_characters])(rng)


# ---------------------------------------------------------------- running


class SlowError(BaseException):
    """A case that ran past TIME_LIMIT."""


def _late(_: int, __: FrameType | None) -> None:
    raise SlowError


def attempt(text: str, again: bool) -> str:
    """What became of a text: "program", an error's code, or what must not be, after an exclamation mark."""
    signal.setitimer(signal.ITIMER_VIRTUAL, TIME_LIMIT)
    try:
        p = ns.parse(text)
        if again:
            written = listing(p)
            if listing(ns.parse(written)) != written:
                return "!round trip"
        return "program"
    except ns.NetsorError as error:
        complete = error.diagnostic.code.startswith("NT") and (error.diagnostic.location is not None)
        return error.diagnostic.code if complete else "!an error without code or place"
    except SlowError:
        return "!slow"
    except BaseException as error:  # every other exception is a finding
        return f"!{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def fuzz(seed: int, count: int) -> tuple[Counter[str], list[tuple[str, str]]]:
    """How often each outcome came, and the texts that must not be with their outcomes."""
    outcomes: Counter[str] = Counter()
    findings: list[tuple[str, str]] = []
    ns.parse(SAMPLE)  # what a first call imports is no finding
    executed = _watch()
    signal.signal(signal.SIGVTALRM, _late)
    for text in texts(seed, count):
        executed.clear()
        outcome = attempt(text, again=True)
        if executed:
            outcome = f"!executed {executed[0]}"
        outcomes[outcome] += 1
        if outcome.startswith("!"):
            findings.append((outcome, text))
    return outcomes, findings


_EVENTS: list[str] = []


def _watch() -> list[str]:
    """A list that grows when Python compiles source, starts a process or opens a connection."""
    if not hasattr(_watch, "on"):
        sys.addaudithook(_hook)
        _watch.on = True  # type: ignore[attr-defined]
    return _EVENTS


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect"):
        _EVENTS.append(event)
    elif event == "compile" and args[0] is not None and not str(args[1]).endswith(".py"):
        _EVENTS.append(f"{event} {args[1]}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, default=20_000)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    begin = time.perf_counter()
    outcomes, findings = fuzz(given.seed, given.cases)
    for outcome, text in findings[:10]:
        print(f"{outcome}\n{text}\n{'-' * 40}")
    for outcome, count in outcomes.most_common():
        print(f"{count:7d}  {outcome[:100]}")
    print(f"{given.cases} cases, {len(findings)} findings, {time.perf_counter() - begin:.0f} s")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
