import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
h = p.let("h", p.matrix("U", n, x) @ x)
W = p.matrix("W", n, n)
h2 = p.let("h2", W @ (h + 1))
dx1 = p.let("dx1", W.T @ (2 * h2))
