import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
b = p.bias("b", n)
y = p.let("y", x + b)
