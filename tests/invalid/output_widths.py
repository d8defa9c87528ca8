import netsor as ns

p = ns.Program("p")
n = p.width("n")
m = p.width("m")
p.output(p.readout("v", m), p.vector("x", n))
