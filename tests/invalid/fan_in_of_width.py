import netsor as ns

p = ns.Program("p")
n = p.width("n")
W = p.matrix("W", n, n, fan_in=None)
