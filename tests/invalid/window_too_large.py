import netsor as ns

p = ns.Program("p")
n = p.width("n")
p.axis("t", 2)
x = p.vector("x", n, axes="t")
y = x.window("t", size=3, padding="valid")
