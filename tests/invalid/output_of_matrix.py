import netsor as ns

p = ns.Program("p")
n = p.width("n")
p.output(p.readout("v", n), p.matrix("W", n, n))
