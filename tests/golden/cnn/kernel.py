"""Infinite-width kernels of cnn, derived line by line from its program."""

import math

import torch

from netsor.compilers import runtime as rt

PROGRAM = """\
program cnn
width n
axis row, col, k = 9, k2 = 9, k3 = 9
data x[row, col]
_1[row, col, k] := x[row + k, col + k] where k in -1..1, -1..1
W1[k] : A(n, x) var 1
_2[row, col, k] := W1[k] @ _1[row, col, k]
h1[row, col] := sum[k](_2[row, col, k])
x1[row, col] := relu(h1[row, col])
_4[row, col, k2] := x1[row + k2, col + k2] where k2 in -1..1, -1..1
W2[k2] : A(n, n) var 1
_5[row, col, k2] := W2[k2] @ _4[row, col, k2]
h2[row, col] := sum[k2](_5[row, col, k2])
x2[row, col] := relu(h2[row, col])
_7[row, col, k3] := x2[row + k3, col + k3] where k3 in -1..1, -1..1
W3[k3] : A(n, n) var 1
_8[row, col, k3] := W3[k3] @ _7[row, col, k3]
h3[row, col] := sum[k3](_8[row, col, k3])
x3[row, col] := relu(h3[row, col])
v[row, col] : G(n) var 1 readout
output v . x3
"""

INPUTS = {'x': ('data', (('row', None), ('col', None)))}

TAPS = (-1, -1, -1, 0, 0, 0, 1, 1, 1)
TAPS_2 = (-1, 0, 1, -1, 0, 1, -1, 0, 1)
relu = rt.relu_power(1)  # relu(z)
step = rt.relu_power(0)  # step(z)
def f_1(c0):
    return 1/math.sqrt(c0)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    row_size = data.size['row']
    col_size = data.size['col']
    K_x = rt.gram("nabd,nabd->nab", data['x'], data['x'])
    # h1[row, col] := sum[k](_2[row, col, k])
    row_move = rt.forward(0, TAPS, 1, row_size, False)
    col_move = rt.forward(1, TAPS_2, 1, col_size, False)
    K_h1 = rt.box(K_x, 1, row_move, col_move)
    del K_x
    # x1[row, col] := relu(h1[row, col])
    V_h1 = rt.Variance(K_h1)
    K_x1 = rt.E11(relu, relu, V_h1)
    # h2[row, col] := sum[k2](_5[row, col, k2])
    K_h2 = rt.box(K_x1, 1, row_move, col_move)
    del K_x1
    # x2[row, col] := relu(h2[row, col])
    V_h2 = rt.Variance(K_h2)
    K_x2 = rt.E11(relu, relu, V_h2)
    # h3[row, col] := sum[k3](_8[row, col, k3])
    K_h3 = rt.box(K_x2, 1, row_move, col_move)
    return rt.Each(data, K_h1=V_h1, K_h2=V_h2, K_h3=K_h3)


def pairs(a, b, get, work):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    shorter = rt.shorter(a.data, b.data)
    row_size = shorter['row']
    col_size = shorter['col']
    row_size_a = a.data.size['row']
    col_size_a = a.data.size['col']
    row_size_b = b.data.size['row']
    col_size_b = b.data.size['col']
    x_a = rt.fit(a.data['x'], (2, row_size), (3, col_size))
    x_b = rt.fit(b.data['x'], (2, row_size), (3, col_size))
    K_x = rt.gram("nmabd,nmabd->nmab", x_a, x_b, work)
    del x_a, x_b
    # h1[row, col] := sum[k](_2[row, col, k])
    row_move = rt.forward(0, TAPS, 1, row_size, False)
    col_move = rt.forward(1, TAPS_2, 1, col_size, False)
    K_h1 = rt.box(K_x, 2, row_move, col_move, work=work)
    del K_x
    # x1[row, col] := relu(h1[row, col])
    K_h1_a = rt.fit(a.side.K_h1, (2, row_size, row_size_a), (3, col_size, col_size_a))
    K_h1_b = rt.fit(b.side.K_h1, (2, row_size, row_size_b), (3, col_size, col_size_b))
    L_x1 = rt.law(work, K_h1_a, K_h1_b, K_h1, same=True)
    del K_h1_a, K_h1_b
    K_x1 = rt.E2(relu, relu, L_x1)
    if 'ntk' in get:
        # x1[row, col] := relu(h1[row, col])
        T_x1 = rt.E2(step, step, L_x1)
        T_x1 = rt.times(T_x1, K_h1)
    del K_h1, L_x1
    # h2[row, col] := sum[k2](_5[row, col, k2])
    K_h2 = rt.box(K_x1, 2, row_move, col_move, work=work)
    del K_x1
    # x2[row, col] := relu(h2[row, col])
    K_h2_a = rt.fit(a.side.K_h2, (2, row_size, row_size_a), (3, col_size, col_size_a))
    K_h2_b = rt.fit(b.side.K_h2, (2, row_size, row_size_b), (3, col_size, col_size_b))
    L_x2 = rt.law(work, K_h2_a, K_h2_b, K_h2, same=True)
    del K_h2_a, K_h2_b
    K_x2 = rt.E2(relu, relu, L_x2)
    if 'ntk' in get:
        # h2[row, col] := sum[k2](_5[row, col, k2])
        T_h2 = rt.box(T_x1, 2, row_move, col_move, work=work)
        del T_x1
        T_h2 = rt.axpby(1, T_h2, 1, K_h2)
    del K_h2
    if 'ntk' in get:
        # x2[row, col] := relu(h2[row, col])
        T_x2 = rt.E2(step, step, L_x2)
        T_x2 = rt.times(T_x2, T_h2)
        del T_h2
    del L_x2
    # h3[row, col] := sum[k3](_8[row, col, k3])
    K_h3 = rt.box(K_x2, 2, row_move, col_move, work=work)
    del K_x2
    # x3[row, col] := relu(h3[row, col])
    K_h3_a = rt.fit(a.side.K_h3, (2, row_size, row_size_a), (3, col_size, col_size_a))
    K_h3_b = rt.fit(b.side.K_h3, (2, row_size, row_size_b), (3, col_size, col_size_b))
    L_x3 = rt.law(work, K_h3_a, K_h3_b, K_h3, same=True)
    del K_h3_a, K_h3_b
    K_x3 = rt.E2(relu, relu, L_x3)
    if 'ntk' in get:
        # h3[row, col] := sum[k3](_8[row, col, k3])
        T_h3 = rt.box(T_x2, 2, row_move, col_move, work=work)
        del T_x2
        T_h3 = rt.axpby(1, T_h3, 1, K_h3)
    del K_h3
    if 'ntk' in get:
        # x3[row, col] := relu(h3[row, col])
        T_x3 = rt.E2(step, step, L_x3)
        T_x3 = rt.times(T_x3, T_h3)
        del T_h3
    del L_x3
    if 'nngp' in get:
        col = rt.grid(a.data, col_size_b, 0)
        nngp_ = rt.inside(a.data, col, col_size_a)
        del col
        K_x3_2 = rt.fit(K_x3, (2, row_size_b, row_size), (3, col_size_b, col_size))
        K_x3_2 = K_x3_2.permute(0, 1, 3, 2)
        row = rt.grid(a.data, row_size_b, 0)
        nngp_2 = rt.inside(a.data, row, row_size_a)
        del row
        nngp_2 = rt.contract("nmab,nmb->nma", (K_x3_2, nngp_2), a=col_size_b, b=row_size_b)
        del K_x3_2
        nngp_ = rt.contract("nma,nma->nm", (nngp_, nngp_2), a=col_size_b)
        del nngp_2
        nngp_3 = f_1(row_size_a)
        nngp_ = rt.times(nngp_, nngp_3)
        nngp_4 = f_1(col_size_a)
        nngp_ = rt.times(nngp_, nngp_4)
        nngp_5 = f_1(row_size_b)
        nngp_ = rt.times(nngp_, nngp_5)
        nngp_6 = f_1(col_size_b)
        nngp_ = rt.times(nngp_, nngp_6)
        out['nngp'] = rt.shaped(nngp_, a, b)
        del nngp_
    if 'ntk' in get:
        ntk_ = f_1(row_size_a)
        ntk_2 = f_1(col_size_a)
        ntk_ = ntk_ * ntk_2
        ntk_3 = f_1(row_size_b)
        ntk_ = ntk_ * ntk_3
        ntk_4 = f_1(col_size_b)
        ntk_ = ntk_ * ntk_4
        col_2 = rt.grid(a.data, col_size_b, 0)
        ntk_5 = rt.inside(a.data, col_2, col_size_a)
        del col_2
        K_x3_3 = rt.fit(K_x3, (2, row_size_b, row_size), (3, col_size_b, col_size))
        K_x3_3 = K_x3_3.permute(0, 1, 3, 2)
        T_x3_2 = rt.fit(T_x3, (2, row_size_b, row_size), (3, col_size_b, col_size))
        T_x3_2 = T_x3_2.permute(0, 1, 3, 2)
        ntk_6 = rt.add(work, K_x3_3, T_x3_2)
        del T_x3, K_x3_3, T_x3_2
        row_2 = rt.grid(a.data, row_size_b, 0)
        ntk_7 = rt.inside(a.data, row_2, row_size_a)
        del row_2
        ntk_6 = rt.contract("nmab,nmb->nma", (ntk_6, ntk_7), a=col_size_b, b=row_size_b)
        del ntk_7
        ntk_5 = rt.contract("nma,nma->nm", (ntk_5, ntk_6), a=col_size_b)
        del ntk_6
        ntk_ = ntk_ * ntk_5
        del ntk_5
        out['ntk'] = rt.shaped(ntk_, a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
