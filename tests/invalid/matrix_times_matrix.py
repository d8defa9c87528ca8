import netsor as ns

p = ns.Program("p")
n = p.width("n")
W = p.matrix("W", n, n)
V = p.matrix("V", n, n)
h = W @ V
