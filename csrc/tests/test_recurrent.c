/* cv_recur against its definition, in double precision. */
#include <math.h>

#include "kernels/recurrent.h"
#include "tests/check.h"

/* Threads that share a sequence are a team, which tests in Python run. */
void convoy_barrier(cv_thread thread) { (void)thread; }

static double activate(cv_activation act, double v) {
  if (act.kind == CV_SIGMOID) return 1 / (1 + exp(-v));
  if (act.kind == CV_TANH) return tanh(v);
  if (act.kind == CV_HARDSIGMOID) return fmax(0, fmin(1, act.a * v + act.b));
  return fmax(act.a, fmin(act.b, v));
}

static double bound(double v, double clip) { return clip > 0 ? fmax(-clip, fmin(clip, v)) : v; }

static double gate(const cv_recurrent *a, double v) { return activate(a->gate, bound(v, a->clip)); }

static double inner(const cv_recurrent *a, double v) { return activate(a->inner, bound(v, a->clip)); }

/* `count` gates from `first` on of r [cells][gates][cells], in panels. */
static float *pack(const float *r, int cells, int gates, int first, int count) {
  const int panels = (cells + CV_RECURRENT_CELLS - 1) / CV_RECURRENT_CELLS;
  const ptrdiff_t panel = (ptrdiff_t)cells * count * CV_RECURRENT_CELLS;
  float *packed = check_floats(panels * panel);
  memset(packed, 0, (size_t)(panels * panel) * sizeof *packed);
  for (int k = 0; k < cells; k++)
    for (int g = 0; g < count; g++)
      for (int j = 0; j < cells; j++)
        packed[j / CV_RECURRENT_CELLS * panel + (k * count + g) * CV_RECURRENT_CELLS +
               j % CV_RECURRENT_CELLS] = r[(k * gates + first + g) * cells + j];
  return packed;
}

/* One step of one sequence: h and c become the next. */
static void step(const cv_recurrent *a, const float *r, const float *x, double *h, double *c) {
  const int gates = cv_recurrent_gates(a->kind), cells = a->cells;
  double next[256], kept[256];
  for (int j = 0; j < cells && a->kind == CV_GRU_RESET_FIRST; j++) {
    double sum = x[cells + j];
    for (int k = 0; k < cells; k++) sum += h[k] * r[(k * gates + 1) * cells + j];
    kept[j] = gate(a, sum) * h[j];
  }
  for (int j = 0; j < cells; j++) {
    double sum[4] = {0};
    for (int g = 0; g < gates; g++)
      for (int k = 0; k < cells; k++) sum[g] += h[k] * r[(k * gates + g) * cells + j];
    const float *e = a->extra;
    const double bias = e ? e[j] : 0;
    if (a->kind == CV_RNN) next[j] = inner(a, x[j] + sum[0]);
    if (a->kind == CV_GRU_RESET_FIRST) {
      double own = x[2 * cells + j];
      for (int k = 0; k < cells; k++) own += kept[k] * r[(k * gates + 2) * cells + j];
      const double z = gate(a, x[j] + sum[0]), g = inner(a, own);
      next[j] = (1 - z) * g + z * h[j];
    }
    if (a->kind == CV_GRU) {
      const double z = gate(a, x[j] + sum[0]);
      const double reset = gate(a, x[cells + j] + sum[1]);
      next[j] = inner(a, x[2 * cells + j] + reset * (sum[2] + bias));
      next[j] += z * (h[j] - next[j]);
    }
    if (a->kind == CV_LSTM) {
      for (int g = 0; g < 4; g++) sum[g] += x[g * cells + j];
      const double i = gate(a, sum[0] + (e ? e[j] * c[j] : 0));
      const double f = gate(a, sum[2] + (e ? e[2 * cells + j] * c[j] : 0));
      c[j] = f * c[j] + i * inner(a, sum[3]);
      next[j] = gate(a, sum[1] + (e ? e[cells + j] * c[j] : 0)) * activate(a->outer, c[j]);
    }
  }
  memcpy(h, next, (size_t)cells * sizeof *h);
}

/* A layer with numbers of its own, and its weights r as they were. */
typedef struct layer {
  cv_recurrent a;
  float *x, *r, *more, *h0, *c0, *packed, *packed_inner;
} layer;

static layer make(cv_recurrent a, int fed, int extra) {
  const int gates = cv_recurrent_gates(a.kind), rows = cv_recurrent_rows(&a, a.kind);
  const int seen = a.sequences * a.cells, reset = a.kind == CV_GRU_RESET_FIRST;
  const ptrdiff_t given = (ptrdiff_t)a.sequences * a.steps * gates * a.cells;
  layer l = {a,
             check_floats(given),
             check_floats((ptrdiff_t)a.cells * gates * a.cells),
             check_floats(3 * a.cells),
             check_floats(seen),
             check_floats(seen),
             NULL,
             NULL};
  check_fill(l.x, given);
  check_fill(l.r, (ptrdiff_t)a.cells * gates * a.cells);
  for (int i = 0; i < a.cells * gates * a.cells; i++) l.r[i] *= 0.1f;
  check_fill(l.more, 3 * a.cells), check_fill(l.h0, seen), check_fill(l.c0, seen);
  l.packed = pack(l.r, a.cells, gates, 0, reset ? 2 : gates);
  if (reset) l.packed_inner = pack(l.r, a.cells, gates, 2, 1);
  l.a.x = l.x, l.a.r = l.packed, l.a.r_inner = l.packed_inner, l.a.extra = extra && !reset ? l.more : NULL;
  l.a.y = check_floats((ptrdiff_t)rows * seen), l.a.kept = check_floats(seen);
  l.a.h0 = fed ? l.h0 : NULL, l.a.c0 = fed ? l.c0 : NULL;
  return l;
}

static void drop(layer l) {
  free(l.x), free(l.r), free(l.more), free(l.h0), free(l.c0), free(l.packed), free(l.packed_inner);
  free(l.a.y), free(l.a.kept);
}

static void check(const layer *l) {
  const cv_recurrent *a = &l->a;
  const int gates = cv_recurrent_gates(a->kind), rows = cv_recurrent_rows(a, a->kind);
  for (int s = 0; s < a->sequences; s++) {
    double h[256] = {0}, c[256] = {0};
    for (int j = 0; a->h0 && j < a->cells; j++)
      h[j] = a->h0[s * a->cells + j], c[j] = a->c0[s * a->cells + j];
    for (int i = 0; i < a->steps; i++) {
      const int t = a->back ? a->steps - 1 - i : i;
      step(a, l->r, l->x + ((ptrdiff_t)s * a->steps + t) * gates * a->cells, h, c);
      for (int j = 0; j < a->cells; j++) {
        const float got = a->y[((ptrdiff_t)s * rows + t) * a->cells + j];
        CHECK(fabs(got - h[j]) <= 2e-5, "%d gates, %d cells: y[%d][%d][%d] is %g, expected %g", gates,
              a->cells, s, t, j, got, h[j]);
      }
    }
    for (int j = 0; a->kind == CV_LSTM && j < a->cells; j++) {
      const float got = a->y[((ptrdiff_t)s * rows + a->steps) * a->cells + j];
      CHECK(fabs(got - c[j]) <= 2e-5, "%d cells: c[%d][%d] is %g, expected %g", a->cells, s, j, got, c[j]);
    }
  }
}

/* Layers side by side, each in the other direction than the one before it. */
static void run(cv_recurrent a, int layers, int threads, int fed, int extra) {
  layer made[3];
  cv_recurrent given[3];
  for (int i = 0; i < layers; i++) {
    made[i] = make(a, fed, extra);
    made[i].a.back = a.back ^ (i & 1);
    given[i] = made[i].a;
  }
  for (int id = 0; id < threads; id++) cv_recur((cv_thread){id, threads}, given, layers);
  for (int i = 0; i < layers; i++) check(&made[i]), drop(made[i]);
}

int main(void) {
  const cv_recurrent_kind kinds[] = {CV_RNN, CV_GRU, CV_LSTM, CV_GRU_RESET_FIRST};
  const int cells[] = {1, 3, CV_LANES, CV_LANES + 1, CV_RECURRENT_CELLS, 2 * CV_RECURRENT_CELLS + 5};
  for (int i = 0; i < 4; i++)
    for (size_t n = 0; n < sizeof cells / sizeof *cells; n++)
      for (int form = 0; form < 16; form++) {
        const int usual = form < 8;
        const cv_activation hard = {CV_HARDSIGMOID, 0.2f, 0.5f}, relu = {CV_CLAMP, 0, INFINITY};
        const cv_activation squash = {CV_SIGMOID, 0, 0}, tangent = {CV_TANH, 0, 0};
        const cv_recurrent a = {.kind = kinds[i],
                                .sequences = form & 1 ? 7 : 1,
                                .steps = 1 + form % 8,
                                .cells = cells[n],
                                .back = form & 1,
                                .shared = form == 4,
                                .clip = form & 2 ? 0.5f : 0.0f,
                                .gate = usual ? squash : hard,
                                .inner = usual ? tangent : relu,
                                .outer = usual ? tangent : relu};
        /* a thread alone meets nobody */
        run(a, 1 + form % 3, a.shared ? 1 : 2 + (form & 1), form & 4, form % 3);
      }
  return check_done();
}
