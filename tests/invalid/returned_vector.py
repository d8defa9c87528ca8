import netsor as ns

p = ns.Program("p")
n = p.width("n")
p.returns("x", p.vector("x", n))
