"""NT2xx to NT5xx: assumptions of the theorems that fail, or that are undecided."""

from __future__ import annotations

from netsor.check.code import Code

INDEPENDENCE = (
    Code(
        "NT201",
        "clause 1: a vector multiplied by Wᵀ is not odd in the readouts",
        "Whenever Wᵀz is used, z must change sign when all readouts do, through every derived vector and scalar. Then z"
        " and the matrix are uncorrelated in the limit. The witness shows a coordinate of z that does not change sign.",
        "h := W @ x\nz := tanh(h)\ny := W.T @ z          # z does not depend on the readout",
        "Definition A.3, clause 1",
        "gradients are linear in the readout; for anything else see ns.limit",
    ),
    Code(
        "NT202",
        "clause 2: a vector multiplied by W depends on the readouts",
        "Whenever Wz is used, z must not depend on any readout. The witness shows that it does.",
        "h := W @ v            # v is the readout",
        "Definition A.3, clause 2",
        "the forward pass uses vectors of its own, not the readout",
    ),
    Code(
        "NT203",
        "clause 3: a readout has a mean or is correlated",
        "Readouts have mean zero and are uncorrelated with all other input vectors; covariances among them are free.",
        "v = p.readout('v', n, mean=1.0)",
        "Definition A.3, clause 3",
        "draw the readout with mean zero, independently",
    ),
    Code(
        "NT204",
        "no input vector can be a readout",
        "Every set of input vectors violates a clause, and no Wᵀz is there to name.",
        "h := W @ u           # u is the only input vector",
        "Definition A.3",
        "mark the readout: p.readout('v', n)",
    ),
    Code(
        "NT205",
        "BP-like is undecided",
        "Neither a proof nor a witness was found, so the limit under gradient independence is not guaranteed.",
        "a numeric function of unknown parity of the readout",
        "Definition A.3",
        "state the function's parity, mark the readouts, or use ns.limit",
    ),
    Code(
        "NT206",
        "the Simple GIA Check fails",
        "For an output f = v·x/√n the readout v is drawn independently of all other parameters, with mean zero, and x"
        " does not depend on it. With a mean, f itself grows like √n.",
        "v = p.readout('v', n, mean=1.0)\np.output(v, x)",
        "Condition 1",
        "a readout of mean zero that is used in the output only",
    ),
    Code(
        "NT207",
        "the gradient independence assumption is wrong",
        "A vector and a product of the transposed matrix are correlated in the limit: the correction term of the"
        " general rule, Ż = σ² E[∂Z^x/∂Ẑ] Z^y, does not vanish. It was sampled at two widths.",
        "h := W @ x\ny := W.T @ relu(h)",
        "Tensor Programs II, section 6.3; Tensor Programs III",
        "ns.limit(p) computes the true limit",
    ),
)

REGULARITY = (
    Code(
        "NT301",
        "a function that is not polynomially bounded",
        "The theorems ask for |φ(x)| ≤ C‖x‖^p + c. Limits often exist beyond this, as for exp.",
        "y := exp(h)",
        "Theorem A.6; Corollary 7.3",
        "use a function of polynomial growth, or accept a limit outside the theorem",
    ),
    Code(
        "NT302",
        "a function of Gaussian growth or more",
        "Its expectation over a Gaussian of large variance is infinite: there may be no limit.",
        "y := exp(h^2)",
        "Theorem A.6",
        "use a function of slower growth",
    ),
    Code(
        "NT303",
        "a function that is unbounded near a point",
        "Near the point the function exceeds every bound, and its moments may be infinite.",
        "y := 1/h",
        "Theorem A.6",
        "add a positive constant to what may become zero",
    ),
    Code(
        "NT304",
        "growth is undecided",
        "Neither a bound nor a counterexample was found.",
        "y := f(h)            # f = ns.numeric('f', call)",
        "Theorem A.6",
        'state it: ns.numeric(…, growth="polynomial")',
    ),
    Code(
        "NT305",
        "a function that jumps",
        "The weak derivative of a jump is a delta, not a function. The NNGP limit is covered, the NTK is not:"
        " backpropagation takes the derivative to be zero there.",
        "y := step(h)\noutput v . y",
        "Corollary 7.3",
        "use the NNGP kernel, or a function without jumps",
    ),
    Code(
        "NT306",
        "a weak derivative that is not polynomially bounded",
        "The function is polynomially bounded, its derivative is not.",
        "y := sqrt(abs(h))",
        "Corollary 7.3",
        "use the NNGP kernel, or a function with a bounded derivative",
    ),
    Code(
        "NT307",
        "a function that is not controlled in its scalars",
        "Near the limit θ° of its scalars, φ(x; θ) must differ from φ(x; θ°) by at most f(θ) ψ(x), f → 0, ψ"
        " polynomially bounded.",
        "y := h / sqrt(s)      # s → 0",
        "Definition B.5",
        "add a positive constant where a scalar divides; use functions continuous in their scalars",
    ),
    Code(
        "NT308",
        "a weak derivative of unknown growth",
        "The function is polynomially bounded. For its derivative neither a bound nor a counterexample was found, so"
        " ntk_ready is undecided.",
        "y := tricky(h)            # function tricky(x) = cos(exp(x))",
        "Corollary 7.3",
        "use the NNGP kernel, or write the function with a derivative whose bound can be seen",
    ),
    Code(
        "NT309",
        "a question that was given up",
        "Every question of the checker has a budget of work, counted in steps, so that any program is answered soon."
        " The questions named in the message took more, and are undecided where their reason says so.",
        "function f2(x) = f1(f1(x))   # f1(x) = f0(f0(x)), … twenty times",
        "the checker page, budget",
        "make the program smaller: shorter expressions, a scan or a family in place of copies",
    ),
)

RANK = (
    Code(
        "NT401",
        "rank stability fails",
        "Arguments of a matrix that are linearly independent at every width become dependent in the limit.",
        "W @ one; W @ (one + c*u)      # c → 0",
        "Assumption B.7",
        "avoid arguments that differ by a scalar that vanishes",
    ),
)

GRADIENTS = (
    Code(
        "NT501",
        "a trained array without its gradient",
        "The NTK needs the gradient of every product of a trained matrix and of every trained vector.",
        "h := W @ x; …; no gradient statement for h",
        "Eq. 12",
        "p.gradient(of=h, is_=dh), or p.backward() for all of them",
    ),
    Code(
        "NT502",
        "a hand-written gradient that is wrong",
        "At random points it differs from the one of backpropagation. One scale holds for the whole program:"
        " dy = √n ∂f/∂y, n the readout's width.",
        "dh := relu(h) * dx          # relu' is meant",
        "Algorithm 1",
        "compare with the lines that p.backward() writes",
    ),
)
