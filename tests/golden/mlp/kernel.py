"""Infinite-width kernels of mlp, derived line by line from its program."""

import math

import torch

from netsor.compilers import runtime as rt

PROGRAM = """\
program mlp
width n
data x
b1 : G(n) var 1 trainable
W1 : A(n, x) var 1
h1 := W1 @ x
x1 := relu(h1 + b1)
b2 : G(n) var 1 trainable
W2 : A(n, n) var 1
h2 := W2 @ x1
x2 := relu(h2 + b2)
v : G(n) var 1 readout
output v . x2
"""

INPUTS = {'x': ('data', ())}

relu = rt.relu_power(1)  # relu(z)
step = rt.relu_power(0)  # step(z)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    K_x = rt.gram("nd,nd->n", data['x'], data['x'])
    K_h1_b1 = K_x + 1
    del K_x
    # x1 := relu(h1 + b1)
    V_h1_b1 = rt.Variance(K_h1_b1)
    K_x1 = rt.E11(relu, relu, V_h1_b1)
    K_h2_b2 = K_x1 + 1
    return rt.Each(data, K_h1_b1=V_h1_b1, K_h2_b2=K_h2_b2)


def pairs(a, b, get, work):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    K_x = rt.gram("nmd,nmd->nm", a.data['x'], b.data['x'], work)
    K_h1_b1 = rt.add(work, K_x, 1)
    del K_x
    # x1 := relu(h1 + b1)
    L_x1 = rt.law(work, a.side.K_h1_b1, b.side.K_h1_b1, K_h1_b1, same=True)
    K_x1 = rt.E2(relu, relu, L_x1)
    if 'ntk' in get:
        # x1 := relu(h1 + b1)
        T_x1 = rt.E2(step, step, L_x1)
        T_x1 = rt.times(T_x1, K_h1_b1)
    del K_h1_b1, L_x1
    K_h2_b2 = rt.add(work, K_x1, 1)
    if 'ntk' in get:
        # h2 := W2 @ x1
        T_h2 = rt.add(work, K_x1, T_x1)
        del T_x1
    del K_x1
    # x2 := relu(h2 + b2)
    L_x2 = rt.law(work, a.side.K_h2_b2, b.side.K_h2_b2, K_h2_b2, same=True)
    del K_h2_b2
    K_x2 = rt.E2(relu, relu, L_x2)
    if 'ntk' in get:
        # x2 := relu(h2 + b2)
        T_x2 = rt.E2(step, step, L_x2)
        T_x2_2 = rt.add(work, T_h2, 1)
        del T_h2
        T_x2 = rt.times(T_x2, T_x2_2)
        del T_x2_2
    del L_x2
    if 'nngp' in get:
        out['nngp'] = rt.shaped(K_x2, a, b)
    if 'ntk' in get:
        ntk_ = rt.add(work, K_x2, T_x2)
        del T_x2
        out['ntk'] = rt.shaped(ntk_, a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
