/* From classic TVM's packed call to a region's plain C function: implements convoy/classic_entry.h, and the
 * two functions by which a program reads and sets the number of threads of a library. */
#include "convoy/classic_entry.h"

#include "convoy/runtime.h"
#include "runtime/arguments.h"

static const cv_dltensor *tensor_at(const void *args, int index, int *type) {
  const cv_dltensor *tensor = ((const cv_classic_value *)args)[index].handle;
  *type = CV_CLASSIC_NULL; /* all else that is no tensor, TVM has refused */
  return tensor;
}

int cv_raise(const char *kind, const char *message) {
  (void)kind; /* classic TVM has one kind of error for all */
  TVMAPISetLastError(message);
  return -1;
}

int convoy_call_classic(const cv_entry *entry, const cv_classic_value *args, int count) {
  static const cv_call_form form = {.tensor_at = tensor_at, .has_bare = true};
  cv_entry named = *entry;
  named.name = args[0].handle;
  return cv_call(&named, &form, args + 1, count - 1);
}

/* The names TVM finds these by are also those of the C functions they call, so they get them by assembler
 * label. */
CV_TVM_EXPORT int packed_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                     cv_classic_value *result, int *result_kind,
                                     void *self) __asm__("convoy_num_threads");
CV_TVM_EXPORT int packed_set_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                         cv_classic_value *result, int *result_kind,
                                         void *self) __asm__("convoy_set_num_threads");

__attribute__((weak)) int packed_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                             cv_classic_value *result, int *result_kind, void *self) {
  (void)args, (void)kinds, (void)self;
  if (count != 0) {
    TVMAPISetLastError("convoy_num_threads: expected no argument; call it without any");
    return -1;
  }
  result->integer = convoy_num_threads();
  *result_kind = CV_CLASSIC_INT;
  return 0;
}

__attribute__((weak)) int packed_set_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                                 cv_classic_value *result, int *result_kind, void *self) {
  (void)result, (void)self;
  if (count != 1 || kinds[0] != CV_CLASSIC_INT) {
    TVMAPISetLastError(
        "convoy_set_num_threads: expected one int; pass a number of threads, 0 for the default");
    return -1;
  }
  const int64_t threads = args[0].integer;
  convoy_set_num_threads(threads > 0 ? (int)(threads < 1 << 20 ? threads : 1 << 20) : 0);
  *result_kind = CV_CLASSIC_NULL;
  return 0;
}
