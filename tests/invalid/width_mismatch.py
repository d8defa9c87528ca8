import netsor as ns

p = ns.Program("p")
n = p.width("n")
m = p.width("m")
x = p.vector("x", m)
W = p.matrix("W", n, n)
h = W @ x
