import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
U = p.matrix("U", n, x)
d = U.T @ p.vector("dh", n)
