import netsor as ns

p = ns.Program("p")
n = p.width("n")
c = ns.moment(p.vector("x", n))
h = p.matrix("W", n, n) @ c
