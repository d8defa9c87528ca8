"""NT0xx and NT1xx: listings that cannot be read, and lines that the language does not allow."""

from __future__ import annotations

from netsor.check.code import Code

_LISTING = "the language page, section on listings"
_A1 = "Definition A.1"

LISTINGS = (
    Code(
        "NT000",
        "a command or file that cannot be used",
        "The command line was given a file, a setting or a name that does not exist or cannot be imported.",
        "netsor check missing.netsor",
        "the command-line page",
        "check the spelling and the path",
    ),
    Code(
        "NT001",
        "a character that means nothing",
        "The listing holds a character outside the language.",
        "h := W $ x",
        _LISTING,
        "remove it, or write the name in backquotes",
    ),
    Code(
        "NT002",
        "a statement that has no such form",
        "The words are known, but not in this order; the message says what was expected.",
        "h := W @",
        _LISTING,
        "see the statement's form in the grammar",
    ),
    Code(
        "NT003",
        "a bracket without its partner",
        "An opening bracket is never closed, or a closing one closes nothing.",
        "x := relu(h + b",
        _LISTING,
        "balance the brackets",
    ),
    Code(
        "NT004",
        "an index that is none",
        "A family is indexed by axes, offsets and whole numbers only.",
        "y := x[1.5]",
        _LISTING,
        "write an axis, an axis plus a number, or a whole number",
    ),
    Code(
        "NT005",
        "too large",
        "Statements, numbers and nesting are bounded, so that any text is read in a moment.",
        "x := " + "(" * 6 + "…",
        _LISTING,
        "give parts of the expression names",
    ),
    Code(
        "NT006",
        "a number out of range",
        "Sizes, strides and offsets are whole numbers of moderate size.",
        "axis t = -3",
        _LISTING,
        "write a whole number in the range of the message",
    ),
    Code(
        "NT007",
        "a window that is not clear",
        "The offsets or sizes of a window do not follow from the line.",
        "y[s] := sum[k](W[k] @ x[s + k])   # with no offsets for k",
        _LISTING,
        "declare the tap axis with its offsets",
    ),
    Code(
        "NT008",
        "an attribute that the variable lacks",
        "Matrices, vectors and scalars have different attributes.",
        "W : A(n, n) mean 1",
        _LISTING,
        "matrices have var, multiplier, fan_in; vectors mean, var, cov; scalars limit",
    ),
    Code(
        "NT009",
        "not a finite real number",
        "A constant divides by zero or leaves the real numbers.",
        "x := h / 0",
        _LISTING,
        "write a finite real number",
    ),
    Code(
        "NT010",
        "a numeric function",
        "A function given by a callable prints its name but has no text to read back.",
        "function f = <numeric>",
        _LISTING,
        "define it by an expression, or build the program in Python",
    ),
)

LANGUAGE = (
    Code(
        "NT100",
        "a line that the language does not allow",
        "The message says why.",
        "p.let('x', 3)",
        _A1,
        "follow the message",
    ),
    Code(
        "NT101",
        "width mismatch",
        "Widths are nominal: a matrix A(n1, n2) applies to vectors of width n2, and vectors of different widths never"
        " meet in one coordinatewise function.",
        "W : A(n1, n1)\nx : G(n2)\nh := W @ x",
        "Definition A.1; Appendix C, common dimension classes",
        "put a matrix between them, or use one width for both",
    ),
    Code(
        "NT102",
        "matrix, vector or scalar in the wrong place",
        "A matrix is applied to a vector and takes part in no arithmetic; matrices are not multiplied.",
        "h := u @ v",
        _A1,
        "W @ (V @ x) applies one after the other; ns.dot(x, y) is the moment of a product",
    ),
    Code(
        "NT103",
        "a name that is not defined",
        "Every variable is made by an earlier line; only the shift of a scan reads a later one.",
        "h := W @ x        # x comes later\nx := tanh(u)",
        _A1,
        "move the definition up, or fix the name",
    ),
    Code(
        "NT104",
        "a name taken twice, or no name",
        "Every variable, width and function has its own name: text that prints, without a backquote.",
        "h := W @ x\nh := W @ y",
        _A1,
        "choose another name",
    ),
    Code(
        "NT105",
        "the transpose of an embedding matrix",
        "A matrix applied to data has a fixed number of columns; its transpose would make a vector of that fixed"
        " dimension, which has no limit.",
        "U : A(n, x)\nd := U.T @ dh",
        _A1,
        "gradients with respect to the data are not part of a program",
    ),
    Code(
        "NT106",
        "data and vectors of a width in one function",
        "Data have a fixed dimension, vectors one that grows.",
        "y := tanh(x + b)        # x is data",
        _A1,
        "embed the data first: U @ x",
    ),
    Code(
        "NT107",
        "axes or sizes that do not fit",
        "An axis does not exist here, is there twice, or has different sizes.",
        "y = x.sum('time')       # x has no axis time",
        "the language page, families",
        "name an axis that the variable has",
    ),
    Code(
        "NT108",
        "not the kind of thing that is expected",
        "A vector, a scalar or a width was expected.",
        "p.returns('c', h)       # h is a vector",
        _A1,
        "follow the message",
    ),
    Code(
        "NT109",
        "a value out of range",
        "Variances are not negative, ratios positive; a fan-in other than the columns needs data columns.",
        "p.matrix('W', n, n, var=-1)",
        "the language page, parametrisation",
        "give a valid value",
    ),
    Code(
        "NT110",
        "outputs and gradients that do not fit",
        "A backward pass needs an output, and is stated once.",
        "p.backward()            # no output",
        "the language page, gradients",
        "end the forward pass with p.output(v, x)",
    ),
    Code(
        "NT111",
        "a scan that reads itself wrongly",
        "Inside a scan the state is read one step back, through the shift, and by lines that treat every step alike. A"
        " sum, a window or a fixed step of the unfinished family has no meaning.",
        "p.scan(time, 0, lambda s: s.sum(time) + u)",
        "the language page, recurrence",
        "take sums, windows and elements of the finished family, after the scan",
    ),
    Code(
        "NT112",
        "covariances that no vectors have",
        "Covariances are stated once, between input vectors of one width, and form a positive semidefinite matrix.",
        "v = p.vector('v', n, cov={u: 2.0})   # both of variance 1",
        "Definition A.2, sampling of the input vectors",
        "a covariance is at most √(var·var)",
    ),
)
