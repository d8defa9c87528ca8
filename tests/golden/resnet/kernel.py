"""Infinite-width kernels of resnet, derived line by line from its program."""

import math

import torch

from netsor.compilers import runtime as rt

PROGRAM = """\
program resnet
width n
data x
W0 : A(n, x) var 1
x0 := W0 @ x
W1 : A(n, n) var 1
h1 := W1 @ x0
x1 := relu(h1) + x0
W2 : A(n, n) var 1
h2 := W2 @ x1
x2 := relu(h2) + x1
W3 : A(n, n) var 1
h3 := W3 @ x2
x3 := relu(h3) + x2
v : G(n) var 1 readout
output v . x3
"""

INPUTS = {'x': ('data', ())}

relu = rt.relu_power(1)  # relu(z)
step = rt.relu_power(0)  # step(z)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    K_x = rt.gram("nd,nd->n", data['x'], data['x'])
    # x1 := relu(h1) + x0
    V_x = rt.Variance(K_x)
    K_relu_h1 = rt.E11(relu, relu, V_x)
    K_x1 = K_x + K_relu_h1
    del K_relu_h1
    # x2 := relu(h2) + x1
    M_relu_h2 = rt.E1(relu, K_x1)
    # x1 := relu(h1) + x0
    M_relu_h1 = rt.E1(relu, K_x)
    # x2 := relu(h2) + x1
    V_x1 = rt.Variance(K_x1)
    K_relu_h2 = rt.E11(relu, relu, V_x1)
    K_x1__relu_h2 = M_relu_h1 * M_relu_h2
    K_x2 = 2 * K_x1__relu_h2
    del K_x1__relu_h2
    K_x2 = K_x1 + K_x2
    K_x2 = K_x2 + K_relu_h2
    del K_relu_h2
    # x3 := relu(h3) + x2
    M_relu_h3 = rt.E1(relu, K_x2)
    # x2 := relu(h2) + x1
    M_x2 = M_relu_h1 + M_relu_h2
    return rt.Each(
        data, K_x=V_x, K_x1=V_x1, M_relu_h2=M_relu_h2, M_relu_h1=M_relu_h1, K_x2=K_x2, M_relu_h3=M_relu_h3, M_x2=M_x2,
    )


def pairs(a, b, get, work):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    K_x = rt.gram("nmd,nmd->nm", a.data['x'], b.data['x'], work)
    # x1 := relu(h1) + x0
    L_relu_h1 = rt.law(work, a.side.K_x, b.side.K_x, K_x, same=True)
    K_relu_h1 = rt.E2(relu, relu, L_relu_h1)
    if 'ntk' in get:
        # x1 := relu(h1) + x0
        T_relu_h1 = rt.E2(step, step, L_relu_h1)
        T_relu_h1 = rt.times(T_relu_h1, 2)
        T_relu_h1 = rt.times(T_relu_h1, K_x)
    del L_relu_h1
    # x1 := relu(h1) + x0
    K_x1 = rt.add(work, K_x, K_relu_h1)
    del K_relu_h1
    if 'ntk' in get:
        # x1 := relu(h1) + x0
        T_x1 = rt.add(work, K_x, T_relu_h1)
        del T_relu_h1
    del K_x
    # x2 := relu(h2) + x1
    L_relu_h2 = rt.law(work, a.side.K_x1, b.side.K_x1, K_x1, same=True)
    K_relu_h2 = rt.E2(relu, relu, L_relu_h2)
    if 'ntk' in get:
        # h2 := W2 @ x1
        T_h2 = rt.add(work, K_x1, T_x1)
        # x2 := relu(h2) + x1
        T_relu_h2 = rt.E2(step, step, L_relu_h2)
        T_relu_h2 = rt.times(T_relu_h2, T_h2)
        del T_h2
    del L_relu_h2
    # x2 := relu(h2) + x1
    K_x2 = a.M_relu_h2 * b.M_relu_h1
    K_x2 = rt.add(work, K_x1, K_x2)
    del K_x1
    K_x2_2 = a.M_relu_h1 * b.M_relu_h2
    K_x2 = rt.axpby(1, K_x2, 1, K_x2_2)
    del K_x2_2
    K_x2 = rt.axpby(1, K_x2, 1, K_relu_h2)
    del K_relu_h2
    # x3 := relu(h3) + x2
    L_relu_h3 = rt.law(work, a.side.K_x2, b.side.K_x2, K_x2, same=True)
    K_relu_h3 = rt.E2(relu, relu, L_relu_h3)
    if 'ntk' in get:
        # x2 := relu(h2) + x1
        T_x2 = rt.add(work, T_x1, T_relu_h2)
        del T_x1, T_relu_h2
    # x3 := relu(h3) + x2
    K_x3 = a.M_relu_h3 * b.M_x2
    K_x3 = rt.add(work, K_x2, K_x3)
    K_x3_2 = a.M_x2 * b.M_relu_h3
    K_x3 = rt.axpby(1, K_x3, 1, K_x3_2)
    del K_x3_2
    K_x3 = rt.axpby(1, K_x3, 1, K_relu_h3)
    del K_relu_h3
    if 'ntk' in get:
        # h3 := W3 @ x2
        T_h3 = rt.add(work, K_x2, T_x2)
    del K_x2
    if 'ntk' in get:
        # x3 := relu(h3) + x2
        T_relu_h3 = rt.E2(step, step, L_relu_h3)
        T_relu_h3 = rt.times(T_relu_h3, T_h3)
        del T_h3
    del L_relu_h3
    if 'ntk' in get:
        T_x3 = rt.add(work, T_x2, T_relu_h3)
        del T_x2, T_relu_h3
    if 'nngp' in get:
        out['nngp'] = rt.shaped(K_x3, a, b)
    if 'ntk' in get:
        ntk_ = rt.add(work, K_x3, T_x3)
        del T_x3
        out['ntk'] = rt.shaped(ntk_, a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
