import netsor as ns

p = ns.Program("p")
n = p.width("n")
time = p.axis("time", 4)
u = p.vector("u", n, axes=time)
W = p.matrix("W", n, n)
s = p.scan(time, 0, lambda s: ns.tanh(W @ s + u + s.mean(time)))
