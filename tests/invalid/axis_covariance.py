import netsor as ns

p = ns.Program("p")
n = p.width("n")
t = p.axis("t", 2)
u = p.vector("u", n, axes=t, axis_cov=[[1, 2], [2, 1]])
