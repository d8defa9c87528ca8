import netsor as ns

p = ns.Program("p")
n = p.width("n")
m = p.width("m")
W = p.matrix("W", m, n)
y = W.T @ p.vector("u", n)
