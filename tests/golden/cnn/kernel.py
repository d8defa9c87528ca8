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

relu = rt.relu_power(1)  # relu(z)
step = rt.relu_power(0)  # step(z)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    K_x = rt.gram("nabd,nabd->nab", data['x'], data['x'])
    K_h1 = rt.box(K_x, 1, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, data.size['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, data.size['col'], False))  # h1[row, col] := sum[k](_2[row, col, k])
    K_x1 = rt.E11(relu, relu, K_h1)  # x1[row, col] := relu(h1[row, col])
    K_h2 = rt.box(K_x1, 1, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, data.size['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, data.size['col'], False))  # h2[row, col] := sum[k2](_5[row, col, k2])
    K_x2 = rt.E11(relu, relu, K_h2)  # x2[row, col] := relu(h2[row, col])
    K_h3 = rt.box(K_x2, 1, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, data.size['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, data.size['col'], False))  # h3[row, col] := sum[k3](_8[row, col, k3])
    return rt.Each(data, K_h1=K_h1, K_h2=K_h2, K_h3=K_h3)


def pairs(a, b, get):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    shorter = rt.shorter(a.data, b.data)
    K_x = rt.gram("nmabd,nmabd->nmab", rt.fit(a.data['x'], (2, shorter['row']), (3, shorter['col'])), rt.fit(b.data['x'], (2, shorter['row']), (3, shorter['col'])))
    K_h1 = rt.box(K_x, 2, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, shorter['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, shorter['col'], False))  # h1[row, col] := sum[k](_2[row, col, k])
    del K_x
    K_x1 = rt.E2(relu, relu, rt.fit(a.K_h1, (2, shorter['row'], a.data.size['row']), (3, shorter['col'], a.data.size['col'])), rt.fit(b.K_h1, (2, shorter['row'], b.data.size['row']), (3, shorter['col'], b.data.size['col'])), K_h1, same=True)  # x1[row, col] := relu(h1[row, col])
    if 'ntk' in get:
        T_x1 = rt.times(rt.E2(step, step, rt.fit(a.K_h1, (2, shorter['row'], a.data.size['row']), (3, shorter['col'], a.data.size['col'])), rt.fit(b.K_h1, (2, shorter['row'], b.data.size['row']), (3, shorter['col'], b.data.size['col'])), K_h1, same=True), K_h1)  # x1[row, col] := relu(h1[row, col])
    del K_h1
    K_h2 = rt.box(K_x1, 2, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, shorter['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, shorter['col'], False))  # h2[row, col] := sum[k2](_5[row, col, k2])
    del K_x1
    K_x2 = rt.E2(relu, relu, rt.fit(a.K_h2, (2, shorter['row'], a.data.size['row']), (3, shorter['col'], a.data.size['col'])), rt.fit(b.K_h2, (2, shorter['row'], b.data.size['row']), (3, shorter['col'], b.data.size['col'])), K_h2, same=True)  # x2[row, col] := relu(h2[row, col])
    if 'ntk' in get:
        T_h2 = rt.axpby(1, rt.box(T_x1, 2, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, shorter['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, shorter['col'], False)), 1, K_h2)  # h2[row, col] := sum[k2](_5[row, col, k2])
        del T_x1
        T_x2 = rt.times(rt.E2(step, step, rt.fit(a.K_h2, (2, shorter['row'], a.data.size['row']), (3, shorter['col'], a.data.size['col'])), rt.fit(b.K_h2, (2, shorter['row'], b.data.size['row']), (3, shorter['col'], b.data.size['col'])), K_h2, same=True), T_h2)  # x2[row, col] := relu(h2[row, col])
    del K_h2
    if 'ntk' in get:
        del T_h2
    K_h3 = rt.box(K_x2, 2, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, shorter['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, shorter['col'], False))  # h3[row, col] := sum[k3](_8[row, col, k3])
    del K_x2
    K_x3 = rt.E2(relu, relu, rt.fit(a.K_h3, (2, shorter['row'], a.data.size['row']), (3, shorter['col'], a.data.size['col'])), rt.fit(b.K_h3, (2, shorter['row'], b.data.size['row']), (3, shorter['col'], b.data.size['col'])), K_h3, same=True)  # x3[row, col] := relu(h3[row, col])
    if 'ntk' in get:
        T_h3 = rt.axpby(1, rt.box(T_x2, 2, rt.forward(0, (-1, -1, -1, 0, 0, 0, 1, 1, 1), 1, shorter['row'], False), rt.forward(1, (-1, 0, 1, -1, 0, 1, -1, 0, 1), 1, shorter['col'], False)), 1, K_h3)  # h3[row, col] := sum[k3](_8[row, col, k3])
        del T_x2
        T_x3 = rt.times(rt.E2(step, step, rt.fit(a.K_h3, (2, shorter['row'], a.data.size['row']), (3, shorter['col'], a.data.size['col'])), rt.fit(b.K_h3, (2, shorter['row'], b.data.size['row']), (3, shorter['col'], b.data.size['col'])), K_h3, same=True), T_h3)  # x3[row, col] := relu(h3[row, col])
    del K_h3
    if 'ntk' in get:
        del T_h3
    if 'nngp' in get:
        out['nngp'] = rt.shaped(rt.times(rt.contract("nma,nma->nm", (rt.inside(a.data, rt.grid(b.data, b.data.size['col'], 0), a.data.size['col']), rt.contract("nmab,nmb->nma", (rt.fit(K_x3, (2, b.data.size['row'], shorter['row']), (3, b.data.size['col'], shorter['col'])).permute(0, 1, 3, 2), rt.inside(a.data, rt.grid(b.data, b.data.size['row'], 0), a.data.size['row'])), a=b.data.size['col'], b=b.data.size['row'])), a=b.data.size['col']), 1/math.sqrt((a.data.size['row'])), 1/math.sqrt((a.data.size['col'])), 1/math.sqrt((b.data.size['row'])), 1/math.sqrt((b.data.size['col']))), a, b)
    if 'ntk' in get:
        out['ntk'] = rt.shaped((1/math.sqrt((a.data.size['row']))) * (1/math.sqrt((a.data.size['col']))) * (1/math.sqrt((b.data.size['row']))) * (1/math.sqrt((b.data.size['col']))) * rt.contract("nma,nma->nm", (rt.inside(a.data, rt.grid(b.data, b.data.size['col'], 0), a.data.size['col']), rt.contract("nmab,nmb->nma", (rt.add(rt.fit(K_x3, (2, b.data.size['row'], shorter['row']), (3, b.data.size['col'], shorter['col'])).permute(0, 1, 3, 2), rt.fit(T_x3, (2, b.data.size['row'], shorter['row']), (3, b.data.size['col'], shorter['col'])).permute(0, 1, 3, 2)), rt.inside(a.data, rt.grid(b.data, b.data.size['row'], 0), a.data.size['row'])), a=b.data.size['col'], b=b.data.size['row'])), a=b.data.size['col']), a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
