"""The C text that all kernels of inputs with axes share: types, and the walk over the tiles of a block."""

HEAD = """\
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(enable)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif
typedef T V __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef struct {
  const T *one, *two, *plain;
  long count, first, step;
  const int *need;
} Series;
typedef struct {
  const T *const *one, *const *two, *const *plain;
  T *const *out;
  const Series *series;
  unsigned char *near;
  long rows, cols, pad, diagonal, upper, unit, next;
  double bound;
} Block;
static const T zero[L];
"""

MEMORY = """\
/* the tensors of a tile, and behind them what it reads of inputs in vectors; free the first address */
static void *memory(T **w, T **x)
{
  char *start = malloc((WORK + READ) * sizeof(T) + 64);
  if (!start) return 0;
  *w = (T *)(((size_t)start + 63) / 64 * 64);
  *x = *w + WORK;
  memset(*w, 0, WORK * sizeof(T));
  return start;
}
"""

GATHER = """\
/* arrays of the inputs `at` as vectors of inputs; zeros for those below 0 */
static void gather(const T *const *from, const long *size, long count, const long *at, T *x)
{
  for (long k = 0; k < count; x += size[k++] * L)
    for (long e = 0; e < size[k]; e += L)
      for (long l = 0; l < L; ++l) {
        long some = size[k] - e < L ? size[k] - e : L;
        const T *y = from[k] + at[l] * size[k] + e;
        if (at[l] < 0)
          for (long n = 0; n < some; ++n) x[(e + n) * L + l] = 0;
        else if (some == L)
          for (long n = 0; n < L; ++n) x[(e + n) * L + l] = y[n];
        else
          for (long n = 0; n < some; ++n) x[(e + n) * L + l] = y[n];
      }
}

/* results of the lanes from first to last - 1, from place `at` of the first; how many are near */
static long put(const Block *b, T *const *out, const T *near, long at, long first, long last)
{
  long found = 0;
  for (long k = 0; k < RESULTS; ++k)
    for (long l = first; l < last; ++l)
      for (long e = 0; e < SIZES[k]; ++e) b->out[k][(at + l) * SIZES[k] + e] = out[k][e * L + l];
  for (long l = first; l < last; ++l) found += b->near[at + l] = near[l] > (T)b->bound;
  return found;
}
"""

MAIN = """\
/* what no other thread has taken of a block; the number of pairs that are near, or -1 without memory */
long block(Block *b)
{
  long found = 0, across = (b->pad + b->cols + L - 1) / L, down = (b->rows + b->unit - 1) / b->unit;
  T *w, *x, *out[RESULTS ? RESULTS : 1], me[L], near[L];
  void *start = memory(&w, &x);
  if (!start) return -1;
  for (;;) {
    long unit = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED);
    if (unit >= across * down) break;
    long j = (across - 1 - unit / down) * L - b->pad, i = unit % down * b->unit, at[L];
    long first = j < 0 ? -j : 0, last = b->cols - j < L ? b->cols - j : L;
    long end = b->rows - i < b->unit ? b->rows : i + b->unit;
    if (b->upper && end > j + last) end = j + last;
    if (i >= end) continue;
    for (long l = 0; l < L; ++l) at[l] = l < first || l >= last ? -1 : j + l;
    gather(b->two, TWO, SECOND, at, x);
    for (; i < end; ++i) {
      long twice = b->diagonal < 0 ? -1 : i + b->diagonal - j;
      for (long l = 0; l < L; ++l) near[l] = 0, me[l] = l == twice ? 0 : -1;
      if (twice >= 0 && twice < L)
        own(b, i, j, 0, x, w, near, me, out);
      else
        two(b, i, j, 0, x, w, near, me, out);
      found += put(b, out, near, i * b->cols + j, first, last);
    }
  }
  free(start);
  return found;
}
"""

ENTRIES = """\
/* pairs (i[n], j[n]), n = n0 ... n1 - 1, one in each lane; the number of those that are near, or -1 without memory */
long entries(const Block *b, const long *i, const long *j, const unsigned char *twice, long n0, long n1)
{
  long found = 0;
  T *w, *x, *out[RESULTS ? RESULTS : 1], me[L], near[L];
  void *start = memory(&w, &x);
  if (!start) return -1;
  for (long n = n0; n < n1; n += L) {
    long last = n1 - n < L ? n1 - n : L, any = 0, left[L], right[L];
    for (long l = 0; l < L; ++l) {
      left[l] = l < last ? i[n + l] : -1, right[l] = l < last ? j[n + l] : -1;
      near[l] = 0, me[l] = l < last && twice[n + l] ? 0 : -1;
      any |= l < last && twice[n + l];
    }
    gather(b->one, ONE, FIRST, left, x);
    gather(b->two, TWO, SECOND, right, x + FIRSTS);
    if (any)
      own(b, 0, 0, x, x + FIRSTS, w, near, me, out);
    else
      two(b, 0, 0, x, x + FIRSTS, w, near, me, out);
    found += put(b, out, near, n, 0, last);
  }
  free(start);
  return found;
}
"""

TORUS = """\
/* arrays of the second input j, the rows of an image twice each */
static void unrolled(const Block *b, long j, T *x)
{
  for (long k = 0; k < SECOND; ++k) {
    const T *from = b->two[k] + j * TWO[k];
    long rest = TWO[k] / (LEADS * LAST);
    for (long r = 0; r < LEADS; ++r, from += rest * LAST)
      for (long e = 0; e < rest; ++e, x += ROW)
        for (long c = 0; c < ROW; ++c) x[c] = from[c % LAST * rest + e];
  }
}

/* a pair offset by offset; is it near? */
static long pair(const Block *b, long i, long j, long twice, long at, T *x, T *w)
{
  long found = 0;
  T *out[RESULTS ? RESULTS : 1], me[L], near[L], acc[SUMS][L], sum[SUMS];
  double total[SUMS] = {0};
  unrolled(b, j, x);
  OFFSETS {
    long lanes = LAST - first < L ? LAST - first : L;
    memset(acc, 0, sizeof acc);
    for (long l = 0; l < L; ++l) near[l] = 0, me[l] = twice && AT_HOME && l == 0 ? 0 : -1;
    if (twice && AT_HOME)
      own(b, i, j, HERE, x, w, near, me, acc);
    else
      two(b, i, j, HERE, x, w, near, me, acc);
    for (long l = 0; l < lanes; ++l) found |= near[l] > (T)b->bound;
    for (long k = 0; k < SUMS; ++k)
      for (long l = 0; l < lanes; ++l) total[k] += acc[k][l];
  }
  for (long k = 0; k < SUMS; ++k) sum[k] = total[k];
  for (long l = 0; l < L; ++l) near[l] = 0, me[l] = twice ? 0 : -1;
  if (twice)
    own_last(b, i, j, sum, w, near, me, out);
  else
    two_last(b, i, j, sum, w, near, me, out);
  for (long k = 0; k < RESULTS; ++k)
    for (long e = 0; e < SIZES[k]; ++e) b->out[k][at * SIZES[k] + e] = out[k][e * L];
  return b->near[at] = found | (near[0] > (T)b->bound);
}
"""

TORUS_MAIN = """\
/* what no other thread has taken of a block; the number of pairs that are near, or -1 without memory */
long block(Block *b)
{
  long found = 0;
  T *w, *x;
  void *start = memory(&w, &x);
  if (!start) return -1;
  for (;;) {
    long unit = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED), i = unit / b->cols, j = unit % b->cols;
    if (i >= b->rows) break;
    if (b->upper && j < i) continue;
    found += pair(b, i, j, b->diagonal >= 0 && i + b->diagonal == j, unit, x, w);
  }
  free(start);
  return found;
}
"""

TORUS_ENTRIES = """\
/* pairs (i[n], j[n]), n = n0 ... n1 - 1; the number of those that are near, or -1 without memory */
long entries(const Block *b, const long *i, const long *j, const unsigned char *twice, long n0, long n1)
{
  long found = 0;
  T *w, *x;
  void *start = memory(&w, &x);
  if (!start) return -1;
  for (long n = n0; n < n1; ++n) found += pair(b, i[n], j[n], twice[n], n, x, w);
  free(start);
  return found;
}
"""
