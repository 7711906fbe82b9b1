/* Tensors drawn at random to call a region with: a call that fits runs on memory that is all its own, any
 * other one is an error with a text, and nothing is read or written beside the tensors. */
#ifndef CONVOY_TESTS_RUNTIME_ENTRY_CALLS_H_
#define CONVOY_TESTS_RUNTIME_ENTRY_CALLS_H_

#include "convoy/entry.h"
#include "tests/check.h"

enum { CALLS = 200000, DIMS = 6 };

static int raised, ran, accepted;
static char message[2048];

static void note_error(const char *text) {
  raised++;
  snprintf(message, sizeof message, "%s", text);
}

/* y[i] = x[i] + 1 for `images` images of 2 x 3 numbers. */
static int add_one(const void *const *inputs, void *const *outputs, int64_t images) {
  const float *x = inputs[0];
  float *y = outputs[0];
  for (int64_t i = 0; i < images * 6; i++) y[i] = x[i] + 1;
  ran++;
  return CONVOY_OK;
}

static const int64_t shape[] = {1, 2, 3};
static const cv_argument arguments[] = {{"x", 3, shape, CV_FLOAT32}, {"y", 3, shape, CV_FLOAT32}};

static int draw(int count) { return (int)((double)(check_random() + 1) / 2 * count); }

typedef struct drawn {
  cv_tvm_object header; /* a tensor of the modern TVM follows its header */
  cv_dltensor tensor;
  int64_t dims[DIMS], strides[DIMS];
  float *memory;
} drawn;

/* Mostly a tensor that fits; each of its fields may be wrong. */
static void draw_tensor(drawn *d, int images, int odd_images) {
  static const int64_t odd[] = {0, -1, 1, 2, 3, 4, 7, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
  const int64_t fits[DIMS] = {images, 2, 3, 1, 1, 1};
  memset(d, 0, sizeof *d);
  d->memory = malloc((size_t)(images > 0 ? images : 1) * 6 * sizeof(float));
  for (int i = 0; i < images * 6; i++) d->memory[i] = (float)i;
  for (int i = 0; i < DIMS; i++) d->dims[i] = draw(40) || (i == 0 && !odd_images) ? fits[i] : odd[draw(10)];
  const int64_t dense[DIMS] = {6, 3, 1, 1, 1, 1};
  for (int i = 0; i < DIMS; i++) d->strides[i] = draw(40) ? dense[i] : odd[draw(10)];
  d->tensor = (cv_dltensor){.data = draw(40) ? d->memory : NULL,
                            .device_type = draw(40) ? CV_DL_CPU : draw(20),
                            .ndim = draw(20) ? 3 : draw(DIMS + 1),
                            .dtype_code = draw(40) ? CV_DL_FLOAT : (uint8_t)draw(256),
                            .dtype_bits = draw(40) ? 32 : (uint8_t)draw(256),
                            .dtype_lanes = draw(40) ? 1 : (uint16_t)draw(9),
                            .shape = d->dims,
                            .strides = draw(2) ? NULL : d->strides};
}

/* Does the tensor describe memory of `images` images?  Then a call with it may run. */
static int fits(const drawn *d, int images) {
  const cv_dltensor *t = &d->tensor;
  int ok = t->ndim == 3 && t->device_type == CV_DL_CPU && t->dtype_code == CV_DL_FLOAT &&
           t->dtype_bits == 32 && t->dtype_lanes == 1 && d->dims[0] == images && d->dims[1] == 2 &&
           d->dims[2] == 3;
  return ok && (t->data || images == 0);
}

/* A call by one of the TVMs, with `count` arguments of which the first two are x and y. */
typedef int (*entry_call)(const cv_entry *entry, drawn *x, drawn *y, int count);

static void check_call(entry_call call, int64_t batch) {
  const cv_entry entry = {.name = "sample",
                          .region = add_one,
                          .vectors = CV_VECTORS_PORTABLE,
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = arguments,
                          .batch = batch};
  const int images = batch < 0 ? draw(4) : (int)batch;
  drawn x, y;
  /* of a batch known at run time, one tensor that has more images than the other can be told */
  draw_tensor(&x, images, 1), draw_tensor(&y, images, batch >= 0);
  const int count = draw(60) ? 2 : draw(4);
  raised = ran = 0;
  message[0] = 0;
  const int status = call(&entry, &x, &y, count);
  CHECK(status == 0 || status == -1, "status %d", status);
  CHECK(ran == (status == 0 && images > 0), "status %d, %d images, and the region ran %d times", status,
        images, ran);
  CHECK((status != 0) == raised, "status %d with %d errors raised", status, raised);
  CHECK(status == 0 || strlen(message) > 20, "the error says only '%s'", message);
  CHECK(status != 0 || count == 2, "%d arguments were taken", count);
  CHECK(status != 0 || (fits(&x, images) && fits(&y, images)), "tensors were taken that do not fit");
  for (int i = 0; ran && i < images * 6; i++) CHECK(y.memory[i] == (float)i + 1, "a wrong number");
  accepted += status == 0;
  free(x.memory), free(y.memory);
}

static int check_calls(entry_call call) {
  static const int64_t batches[] = {-1, -1, 1, 3};
  for (int i = 0; i < CALLS; i++) check_call(call, batches[i % 4]);
  CHECK(accepted > CALLS / 20 && accepted < CALLS - CALLS / 20, "%d of %d calls were taken", accepted,
        CALLS);
  return check_done();
}

#endif
