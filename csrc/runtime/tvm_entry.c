/* From TVM's packed call to a region's plain C function: implements convoy/tvm_entry.h, and the two
 * functions by which a TVM program reads and sets the number of threads of a library. */
#include "convoy/tvm_entry.h"

#include "convoy/runtime.h"
#include "runtime/arguments.h"

static const cv_dltensor *tensor_at(const void *args, int index, int *type) {
  const cv_tvm_any *value = (const cv_tvm_any *)args + index;
  *type = value->type_index;
  if (value->type_index == CV_TVM_TENSOR && value->pointer) {
    return (const cv_dltensor *)((const char *)value->pointer + sizeof(cv_tvm_object));
  }
  return value->type_index == CV_TVM_DLTENSOR ? value->pointer : NULL;
}

int cv_raise(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

int convoy_call_region(const cv_entry *entry, const cv_tvm_any *args, int32_t count) {
  static const cv_call_form form = {.tensor_at = tensor_at};
  return cv_call(entry, &form, args, count);
}

/* Weak: of two Convoy modules linked into one library the first one's are kept. */
CV_TVM_EXPORT __attribute__((weak)) int __tvm_ffi_convoy_num_threads(void *self, const cv_tvm_any *args,
                                                                     int32_t count, cv_tvm_any *result) {
  (void)self, (void)args;
  if (count != 0) {
    TVMFFIErrorSetRaisedFromCStr("TypeError",
                                 "convoy_num_threads: expected no argument; call it without any");
    return -1;
  }
  *result = (cv_tvm_any){.type_index = CV_TVM_INT, .integer = convoy_num_threads()};
  return 0;
}

CV_TVM_EXPORT __attribute__((weak)) int __tvm_ffi_convoy_set_num_threads(void *self, const cv_tvm_any *args,
                                                                         int32_t count,
                                                                         cv_tvm_any *result) {
  (void)self, (void)result;
  if (count != 1 || args[0].type_index != CV_TVM_INT) {
    TVMFFIErrorSetRaisedFromCStr(
        "TypeError",
        "convoy_set_num_threads: expected one int; pass a number of threads, 0 for the default");
    return -1;
  }
  convoy_set_num_threads(args[0].integer > 0 ? (int)(args[0].integer < 1 << 20 ? args[0].integer : 1 << 20)
                                             : 0);
  return 0;
}
