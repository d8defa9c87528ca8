"""The C text of the walk over the tiles of a band of pairs, shared by threads unit by unit."""

from __future__ import annotations

TYPES_OF_BANDS = """\
typedef T V __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef struct {
  const T *a, *b;
  long lda, ldb, count, first, step;
  const double *tails;
  double reach;
  long beyond;
} Series;
typedef struct {
  const T *const *left, *const *right;
  const long *ldl, *ldr, *features;
  const T *one, *two;
  long ld1, ld2;
  Series *series;
  T *const *out, *const *mirror;
  long ldo, rows, cols, diagonal, upper;
  double bound;
  long *list, capacity, found, next;
} Block;
typedef struct {
  const T *gram[GRAMS ? GRAMS : 1];
  T *out[RESULTS ? RESULTS : 1];
} Tile;
"""

WALK = """\
/* columns c of a strip of rows that are wanted: all, or those on and above the diagonal */
static long first_wanted(const Block *b, long i, long j0, long cols)
{
  long c = b->upper ? i - j0 : 0;
  return c < 0 ? 0 : c > cols ? cols : c;
}

/* a strip of rows: values in `at`, near pairs in the list, results where they belong, and mirrored */
static void strip(Block *b, Tile at, long i, long rows, long j0, long cols)
{
  T size[ROWS][COLS], one[ROWS][COLS];
  Tile here = at;
  for (long s = 0; s < rows; s += ROWS) {
    long some = rows - s < ROWS ? rows - s : ROWS;
    two(b, &here, i + s, some, j0, cols, size);
    for (long r = 0; r < some; ++r) {
      long me = i + s + r + b->diagonal - j0;
      if (b->diagonal >= 0 && me >= 0 && me < cols) {
        Tile twice = here;
        for (long k = 0; k < GRAMS; ++k) twice.gram[k] += r * COLS + me;
        for (long k = 0; k < RESULTS; ++k) twice.out[k] += r * COLS + me;
        own(b, &twice, i + s + r, 1, j0 + me, 1, one);
        size[r][me] = one[0][0];
      }
      long any = 0, from = first_wanted(b, i + s + r, j0, cols);
      for (long c = from; c < cols; ++c) any += size[r][c] > (T)b->bound;
      if (!any) continue;
      long place = __atomic_fetch_add(&b->found, any, __ATOMIC_RELAXED);
      for (long c = from; c < cols; ++c)
        if (size[r][c] > (T)b->bound) {
          if (place < b->capacity) b->list[place] = (i + s + r) * b->cols + j0 + c;
          ++place;
        }
    }
    for (long k = 0; k < GRAMS; ++k) here.gram[k] += ROWS * COLS;
    for (long k = 0; k < RESULTS; ++k) here.out[k] += ROWS * COLS;
  }
  for (long k = 0; k < RESULTS; ++k) {
    const T *value = at.out[k];
    for (long r = 0; r < rows; ++r) {
      T *out = b->out[k] + (i + r) * b->ldo + j0;
      for (long c = first_wanted(b, i + r, j0, cols); c < cols; ++c) out[c] = value[r * COLS + c];
    }
    if (!b->mirror[k]) continue;
    for (long c = 0; c < cols; ++c) {
      T *out = b->mirror[k] + (j0 + c) * b->ldo + i;
      long last = b->upper && j0 + c - i < rows ? j0 + c - i : rows;
      if (last == STRIP)
        for (long r = 0; r < STRIP; ++r) out[r] = value[r * COLS + c];
      else
        for (long r = 0; r < last; ++r) out[r] = value[r * COLS + c];
    }
  }
}

/* what no other thread has taken of rows i0 ... i1 - 1; 0, or -1 without memory */
long band(Block *b, long i0, long i1)
{
  long across = (b->cols + COLS - 1) / COLS, down = (i1 - i0 + UNIT - 1) / UNIT, gram = UNIT * COLS;
  void *memory = malloc((GRAMS * gram + RESULTS * STRIP * COLS + COLS * DEPTH) * sizeof(T) + 64);
  if (!memory) return -1;
  T *start = (T *)(((size_t)memory + 63) / 64 * 64), *results = start + GRAMS * gram;
  for (;;) {
    long unit = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED);
    if (unit >= across * down) break;
    long i = i0 + unit % down * UNIT, j = (across - 1 - unit / down) * COLS, rows = i1 - i < UNIT ? i1 - i : UNIT;
    long cols = b->cols - j < COLS ? b->cols - j : COLS;
    if (b->upper && rows > j + cols - i) rows = j + cols - i;
    if (rows <= 0) continue;
    for (long k = 0; k < GRAMS; ++k)
      products(b, k, i, rows, j, cols, (T (*)[COLS])(start + k * gram), results + RESULTS * STRIP * COLS);
    for (long s = 0; s < rows; s += STRIP) {
      long some = rows - s < STRIP ? rows - s : STRIP;
      Tile at;
      for (long k = 0; k < RESULTS; ++k) at.out[k] = results + k * STRIP * COLS;
      for (long k = 0; k < GRAMS; ++k) {
        T *x = start + k * gram + s * COLS, scale = (T)1 / (T)b->features[k];
        for (long n = 0; n < some * COLS; ++n) x[n] *= scale;
        at.gram[k] = x;
      }
      strip(b, at, i + s, some, j, cols);
    }
  }
  free(memory);
  return 0;
}
"""

PAIRS = """\
/* pairs (i[n], j[n]) of count, those of one i side by side: results at `out[k][n]`, their largest |r| in `size` */
long pairs(const Block *b, const long *i, const long *j, const unsigned char *twice, long count, double *size)
{
  long columns = COLUMNS ? COLUMNS : 1;
  void *memory = malloc((columns + GRAMS + RESULTS) * COLS * sizeof(T) + 64);
  if (!memory) return -1;
  T *two_ = (T *)(((size_t)memory + 63) / 64 * 64), *gram = two_ + columns * COLS, *out = gram + GRAMS * COLS;
  T near[ROWS][COLS];
  Block some = *b;
  some.two = two_, some.ld2 = COLS;
  for (long n = 0, stop; n < count; n = stop) {
    for (stop = n; stop < count && stop < n + COLS && i[stop] == i[n]; ++stop) {
      for (long k = 0; k < COLUMNS; ++k) two_[k * COLS + stop - n] = b->two[k * b->ld2 + j[stop]];
      for (long k = 0; k < GRAMS; ++k) {
        const T *x = b->left[k] + i[n] * b->ldl[k], *y = b->right[k] + j[stop] * b->ldr[k];
        T lanes[LANES], sum = 0;
        long d = b->features[k], l = 0;
        for (long q = 0; q < LANES; ++q) lanes[q] = 0;
        for (; l + LANES <= d; l += LANES)
          for (long q = 0; q < LANES; ++q) lanes[q] += x[l + q] * y[l + q];
        for (; l < d; ++l) sum += x[l] * y[l];
        for (long q = 0; q < LANES; ++q) sum += lanes[q];
        gram[k * COLS + stop - n] = sum / (T)d;
      }
    }
    Tile at;
    for (long k = 0; k < GRAMS; ++k) at.gram[k] = gram + k * COLS;
    for (long k = 0; k < RESULTS; ++k) at.out[k] = out + k * COLS;
    two(&some, &at, i[n], 1, 0, stop - n, near);
    for (long m = n; m < stop; ++m) size[m] = near[0][m - n];
    for (long m = n; m < stop; ++m) {
      if (twice[m]) {
        Tile me = at;
        for (long k = 0; k < GRAMS; ++k) me.gram[k] += m - n;
        for (long k = 0; k < RESULTS; ++k) me.out[k] += m - n;
        own(&some, &me, i[n], 1, m - n, 1, near);
        size[m] = near[0][0];
      }
      for (long k = 0; k < RESULTS; ++k) b->out[k][m] = at.out[k][m - n];
    }
  }
  free(memory);
  return 0;
}
"""
