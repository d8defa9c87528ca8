import netsor as ns

p = ns.Program("p")
n = p.width("n")
u = p.vector("u", n)
v = p.vector("v", n, cov={u: 2.0})
