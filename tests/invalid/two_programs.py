import netsor as ns

p = ns.Program("p")
n = p.width("n")
q = ns.Program("q")
x = p.vector("x", n)
y = q.vector("y", q.width("n"))
z = x + y
