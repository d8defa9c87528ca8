import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.vector("x", n)
W = p.matrix("x", n, n)
