import netsor as ns

p = ns.Program("p")
n = p.width("n")
h = p.matrix("W", n, n) @ p.vector("x", n)
p.backward()
