import netsor as ns

p = ns.Program("p")
n = p.width("n")
time = p.axis("time", 4)
u = p.vector("u", n, axes=time)
s = p.scan(time, 0, lambda s: ns.tanh(u + s.shift(time, -2)))
