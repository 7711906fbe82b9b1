/* From TVM's packed call to a region's plain C function: implements convoy/tvm_entry.h, and the two
 * functions by which a TVM program reads and sets the number of threads of a library. */
#include "convoy/tvm_entry.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "convoy/runtime.h"

enum { CV_MAX_ARGUMENTS = 1024 };

/* A text that is cut off, never overrun. */
typedef struct cv_text {
  char data[1024];
  size_t length;
} cv_text;

__attribute__((format(printf, 2, 3))) static void append(cv_text *text, const char *format, ...) {
  va_list values;
  va_start(values, format);
  const size_t room = sizeof text->data - text->length;
  const int wanted = vsnprintf(text->data + text->length, room, format, values);
  va_end(values);
  if (wanted > 0) text->length += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

static void append_dims(cv_text *text, const int64_t *dims, int ndim) {
  append(text, "[");
  for (int i = 0; i < ndim; ++i) append(text, "%s%lld", i ? ", " : "", (long long)dims[i]);
  append(text, "]");
}

static void append_expected(cv_text *text, const cv_entry *entry, const cv_argument *argument) {
  append(text, "expected float32 [");
  for (int i = 0; i < argument->ndim; ++i) {
    append(text, "%s", i ? ", " : "");
    if (i == 0 && entry->batch < 0) {
      append(text, "N");
    } else {
      append(text, "%lld", (long long)(i == 0 ? argument->shape[0] * entry->batch : argument->shape[i]));
    }
  }
  append(text, "]");
}

static void append_found(cv_text *text, const cv_dltensor *tensor) {
  const char *kind = "dtype";
  switch (tensor->dtype_code) {
    case CV_DL_INT:
      kind = "int";
      break;
    case CV_DL_UINT:
      kind = "uint";
      break;
    case CV_DL_FLOAT:
      kind = "float";
      break;
    case CV_DL_BFLOAT:
      kind = "bfloat";
      break;
    case CV_DL_BOOL:
      kind = "bool";
      break;
    default:
      append(text, "(code %d) ", tensor->dtype_code);
  }
  append(text, "%s%d", kind, tensor->dtype_bits);
  if (tensor->dtype_lanes != 1) append(text, "x%d", tensor->dtype_lanes);
  append(text, " ");
  append_dims(text, tensor->shape, tensor->ndim);
}

static int raise(const char *kind, const cv_text *text) {
  TVMFFIErrorSetRaisedFromCStr(kind, text->data);
  return -1;
}

/* `convoy_ab12: argument 0 (data): expected float32 [N, 3, 224, 224], got ` */
static cv_text begin(const cv_entry *entry, int index) {
  const cv_argument *argument = &entry->arguments[index];
  cv_text text = {{0}, 0};
  append(&text, "%s: %s %d (%s): ", entry->name, index < entry->inputs ? "argument" : "output argument",
         index, argument->name);
  append_expected(&text, entry, argument);
  append(&text, ", got ");
  return text;
}

static const cv_dltensor *as_tensor(const cv_tvm_any *value) {
  if (value->type_index == CV_TVM_TENSOR) {
    return (const cv_dltensor *)((const char *)value->pointer + sizeof(cv_tvm_object));
  }
  return value->type_index == CV_TVM_DLTENSOR ? value->pointer : NULL;
}

static bool is_dense(const cv_dltensor *tensor) {
  if (!tensor->strides) return true;
  int64_t dense = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != dense) return false;
    dense *= tensor->shape[i];
  }
  return true;
}

/* Checks argument `index` and takes its address.  *images is the axis 0 seen so far, -1 at first. */
static int take(const cv_entry *entry, int index, const cv_tvm_any *value, int64_t *images, float **data) {
  const cv_argument *argument = &entry->arguments[index];
  const cv_dltensor *tensor = as_tensor(value);
  if (!tensor) {
    cv_text text = begin(entry, index);
    append(&text, "a value that is no tensor (TVM type index %d); pass a tensor", value->type_index);
    return raise("TypeError", &text);
  }
  if (tensor->dtype_code != CV_DL_FLOAT || tensor->dtype_bits != 32 || tensor->dtype_lanes != 1) {
    cv_text text = begin(entry, index);
    append_found(&text, tensor);
    append(&text, "; convert it to float32");
    return raise("TypeError", &text);
  }
  bool same = tensor->ndim == argument->ndim;
  int64_t size = 1;
  for (int i = 0; same && i < argument->ndim; ++i) {
    const int64_t want = i > 0 ? argument->shape[i]
                               : (entry->batch < 0 ? tensor->shape[0] : argument->shape[0] * entry->batch);
    same = tensor->shape[i] == want && tensor->shape[i] >= 0;
    size *= tensor->shape[i];
  }
  if (!same) {
    cv_text text = begin(entry, index);
    append_found(&text, tensor);
    append(&text, "; pass a tensor of that shape");
    return raise("ValueError", &text);
  }
  if (entry->batch < 0) {
    if (*images >= 0 && tensor->shape[0] != *images) {
      cv_text text = begin(entry, index);
      append_found(&text, tensor);
      append(&text, " where earlier arguments have N = %lld; give all arguments the same N",
             (long long)*images);
      return raise("ValueError", &text);
    }
    *images = tensor->shape[0];
  }
  if (tensor->device_type != CV_DL_CPU) {
    cv_text text = begin(entry, index);
    append(&text, "one on device type %d; copy it to the CPU", tensor->device_type);
    return raise("ValueError", &text);
  }
  if (!is_dense(tensor)) {
    cv_text text = begin(entry, index);
    append(&text, "strides ");
    append_dims(&text, tensor->strides, tensor->ndim);
    append(&text, "; make it contiguous");
    return raise("ValueError", &text);
  }
  *data = (float *)((char *)tensor->data + tensor->byte_offset);
  if (size > 0 && (!tensor->data || (uintptr_t)*data % sizeof(float) != 0)) {
    cv_text text = begin(entry, index);
    append(&text, "%s address; pass memory aligned to 4 bytes", tensor->data ? "a misaligned" : "a null");
    return raise("ValueError", &text);
  }
  return 0;
}

int convoy_call_region(const cv_entry *entry, const cv_tvm_any *args, int32_t count) {
  const int total = entry->inputs + entry->outputs;
  float *data[CV_MAX_ARGUMENTS];
  if (count != total || total > CV_MAX_ARGUMENTS) {
    cv_text text = {{0}, 0};
    append(&text,
           "%s: arguments: expected %d inputs and %d outputs, at most %d together, got %d; pass the "
           "outputs last",
           entry->name, entry->inputs, entry->outputs, CV_MAX_ARGUMENTS, count);
    return raise("ValueError", &text);
  }
  int64_t images = entry->batch;
  for (int i = 0; i < total; ++i) {
    if (take(entry, i, &args[i], &images, &data[i]) != 0) return -1;
  }
  if (images == 0) return 0;
  const int status = entry->region((const float *const *)data, data + entry->inputs, images);
  if (status == CONVOY_OK) return 0;
  cv_text text = {{0}, 0};
  append(&text,
         "%s: scratch memory: expected enough memory for one image, got status %d%s; free memory or raise "
         "the limit",
         entry->name, status, status == CONVOY_OUT_OF_MEMORY ? " (out of memory)" : "");
  return raise(status == CONVOY_OUT_OF_MEMORY ? "MemoryError" : "RuntimeError", &text);
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
