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
