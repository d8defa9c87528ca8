import netsor as ns

p = ns.Program("p")
n = p.width("n")
m = p.width("m")
W = p.matrix("W", m, n)
x = ns.tanh(W @ p.vector("u", n))
y = W @ x
