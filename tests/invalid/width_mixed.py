import netsor as ns

p = ns.Program("p")
n = p.width("n")
m = p.width("m", ratio=2)
x = p.vector("x", n)
y = p.vector("y", m)
z = ns.tanh(x) * y
