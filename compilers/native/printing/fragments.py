"""The C text that all kernels share: types, Mehler's series, and the walk over the tiles of a block."""

from __future__ import annotations

ROWS, COLS = 4, 96  # inputs of the sides of a tile of pairs, whose numbers stay in the fastest cache; whole panels
STRIP = 16  # rows that are written, and mirrored, together


def horner() -> str:
    """`horner`: ROWS × two vectors at once, so that every coefficient that is read serves several pairs."""
    both = [(r, v) for r in range(ROWS) for v in range(2)]
    lines = [
        "static void horner(const Series *s, const T (*a)[ROWS], long last, const T *b, T (*x)[COLS], T (*y)[COLS])",
        "{",
    ]
    lines += [f"  V x{r}{v} = ((const V *)x[{r}])[{v}], q{r}{v} = x{r}{v}, y{r}{v} = x{r}{v} * 0;" for r, v in both]
    lines += ["  if (s->step == 2) {", *(f"    q{r}{v} *= x{r}{v};" for r, v in both), "  }"]
    lines += ["  for (long k = last; k >= 0; --k) {", "    const V *p = (const V *)(b + k * s->ldb);"]
    lines += [f"    y{r}{v} = y{r}{v} * q{r}{v} + a[k][{r}] * p[{v}];" for r, v in both]
    lines += ["  }", "  if (s->first) {", *(f"    y{r}{v} *= x{r}{v};" for r, v in both), "  }"]
    lines += [f"  ((V *)y[{r}])[{v}] = y{r}{v};" for r, v in both]
    return "\n".join([*lines, "}", ""])


HEAD = """\
#include <stdlib.h>
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(enable)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif
#define LANES (64 / (long)sizeof(T))"""

MEHLER = """\
/* y = sum over k of a_k b_k x^k, k = first, first + step, ...; pairs with |x| > reach are marked in near */
static void mehler(Series *s, long i, long rows, long j0, long cols, T (*x)[COLS], T (*y)[COLS], T (*near)[COLS])
{
  T lanes[LANES], largest = 0, reach = s->reach, a[DEGREE][ROWS];
  double power, ratio;
  long last, beyond = 0, whole = (cols + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
  for (long r = 0; r < ROWS; ++r)
    for (long j = r < rows ? cols : 0; j < whole; ++j) x[r][j] = 0;
  for (long l = 0; l < LANES; ++l) lanes[l] = 0;
  for (long r = 0; r < rows; ++r)
    for (long j = 0; j < whole; j += LANES)
      for (long l = 0; l < LANES; ++l) {
        T size = ABS(x[r][j + l]);
        size = size > reach ? 0 : size;
        lanes[l] = size > lanes[l] ? size : lanes[l];
      }
  for (long l = 0; l < LANES; ++l) largest = lanes[l] > largest ? lanes[l] : largest;
  for (long r = 0; r < rows; ++r) {
    IVDEP
    for (long j = 0; j < cols; ++j) {
      beyond += ABS(x[r][j]) > reach;
      near[r][j] = ABS(x[r][j]) > reach ? (T)2 : near[r][j];
    }
  }
  if (beyond) __atomic_fetch_add(&s->beyond, beyond, __ATOMIC_RELAXED);
  ratio = s->step == 2 ? (double)largest * largest : largest;
  power = s->first ? (double)largest * largest : largest;
  for (last = 0; last < s->count - 1 && power * s->tails[last] > 1; ++last) power *= ratio;
  for (long k = 0; k <= last; ++k)
    for (long r = 0; r < ROWS; ++r) a[k][r] = s->a[k * s->lda + i + (r < rows ? r : 0)];
  for (long j = 0; j < whole; j += 2 * LANES)
    horner(s, a, last, s->b + j0 + j, (T (*)[COLS])(x[0] + j), (T (*)[COLS])(y[0] + j));
}
"""


# ---------------------------------------------------------------- inner products of data
#
# A panel is three vectors of columns, stored feature by feature; DEEP rows of the first batch meet it at once, in as
# many accumulators as the processor's vectors have registers for.

WIDE, NARROW = 8, 4  # rows at once with 32 vector registers, and with 16

SIZES = """\
#if defined(__AVX512F__)
#define SIMD 64
#define DEEP 8
#elif defined(__AVX__)
#define SIMD 32
#define DEEP 4
#elif defined(__aarch64__)
#define SIMD 16
#define DEEP 8
#else
#define SIMD 16
#define DEEP 4
#endif
#define PANEL (3 * SIMD / (long)sizeof(T))
#define UNIT (2048 / (long)sizeof(T))
#define DEPTH 128
typedef T W __attribute__((vector_size(SIMD), aligned(sizeof(T)), may_alias));
"""

PACK = """\
/* columns of the second batch as panels, DEPTH features of them; zeros behind the last column */
static void packed(const T *x, long ld, long cols, long depth, T *p)
{
  for (long c = 0; c < COLS; c += PANEL, p += DEPTH * PANEL)
    for (long v = 0; v < PANEL && c < cols; ++v) {
      const T *from = x + (c + v) * ld;
      if (c + v < cols)
        for (long k = 0; k < depth; ++k) p[k * PANEL + v] = from[k];
      else
        for (long k = 0; k < depth; ++k) p[k * PANEL + v] = 0;
    }
}

/* inner products of rows i0 ... i0 + rows - 1 and of some columns, by the number of features */
static void products(const Block *b, long which, long i0, long rows, long j0, long cols, T (*gram)[COLS], T *p)
{
  long d = b->features[which];
  for (long k = 0; k < d; k += DEPTH) {
    long depth = d - k < DEPTH ? d - k : DEPTH;
    packed(b->right[which] + j0 * b->ldr[which] + k, b->ldr[which], cols, depth, p);
    for (long c = 0; c < cols; c += PANEL)
      for (long r = 0; r < rows; r += DEEP) {
        const T *a[DEEP];
        for (long l = 0; l < DEEP; ++l)
          a[l] = b->left[which] + (i0 + (r + l < rows ? r + l : rows - 1)) * b->ldl[which] + k;
        meet(a, depth, p + c * DEPTH, &gram[r][c], k > 0);
      }
  }
}
"""


def products() -> str:
    """`products`, which fills `gram[rows][COLS]` but for the division by the number of features."""
    kernels = [f"#if DEEP == {WIDE}", _meet(WIDE), "#else", _meet(NARROW), "#endif"]
    return "\n".join([*kernels, PACK])


def _meet(rows: int) -> str:
    """`meet`: rows × one panel, added to what is there where `more`."""
    both = [(r, v) for r in range(rows) for v in range(3)]
    lines = ["static void meet(const T *const *a, long depth, const T *p, T *gram, int more)", "{"]
    lines += [f"  const T *a{r} = a[{r}];" for r in range(rows)]
    lines += [f"  W s{r}{v} = {{0}};" for r, v in both]
    lines += ["  for (long k = 0; k < depth; ++k, p += PANEL) {"]
    lines += [f"    W p{v} = ((const W *)p)[{v}];" for v in range(3)]
    lines += [f"    s{r}{v} += a{r}[k] * p{v};" for r, v in both]
    lines += ["  }", "  if (more) {"]
    lines += [f"    s{r}{v} += ((W *)(gram + {r} * COLS))[{v}];" for r, v in both]
    lines += ["  }"]
    lines += [f"  ((W *)(gram + {r} * COLS))[{v}] = s{r}{v};" for r, v in both]
    return "\n".join([*lines, "}"])
