/* What a region is called with, checked: implements runtime/arguments.h. */
#include "runtime/arguments.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/vectors.h"

/* The element types: by cv_dtype, as DLPack says them. */
static const struct cv_element {
  const char *name;
  int code, bits;
} elements[] = {
    [CV_FLOAT32] = {"float32", CV_DL_FLOAT, 32}, [CV_BFLOAT16] = {"bfloat16", CV_DL_BFLOAT, 16},
    [CV_INT32] = {"int32", CV_DL_INT, 32},       [CV_INT8] = {"int8", CV_DL_INT, 8},
    [CV_UINT8] = {"uint8", CV_DL_UINT, 8},
};

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
  append(text, "expected %s [", elements[argument->dtype].name);
  for (int i = 0; i < argument->ndim; ++i) {
    append(text, "%s", i ? ", " : "");
    if (i == 0 && entry->batch < 0) {
      append(text, "N");
    } else if (argument->shape[i] == 0) {
      append(text, "any");
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

static int raise(const char *kind, const cv_text *text) { return cv_raise(kind, text->data); }

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

static bool is_empty(const cv_dltensor *tensor) {
  for (int i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return true;
  }
  return false;
}

/* An empty tensor is, whatever its strides are. */
static bool is_dense(const cv_dltensor *tensor) {
  if (!tensor->strides || is_empty(tensor)) return true;
  int64_t dense = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != dense) return false;
    if (i > 0) dense *= tensor->shape[i]; /* axis 0 may be any number: the product could overflow */
  }
  return true;
}

/* Checks argument `index` but for its address.  *images is the axis 0 seen so far, -1 at first. */
static int check(const cv_entry *entry, int index, const cv_dltensor *tensor, int64_t *images) {
  const cv_argument *argument = &entry->arguments[index];
  const struct cv_element *element = &elements[argument->dtype];
  if (tensor->dtype_code != element->code || tensor->dtype_bits != element->bits ||
      tensor->dtype_lanes != 1) {
    cv_text text = begin(entry, index);
    append_found(&text, tensor);
    append(&text, "; convert it to %s", element->name);
    return raise("TypeError", &text);
  }
  bool same = tensor->ndim == argument->ndim;
  for (int i = 0; same && i < argument->ndim; ++i) {
    const int64_t want = i > 0 ? argument->shape[i]
                               : (entry->batch < 0 ? tensor->shape[0] : argument->shape[0] * entry->batch);
    same = tensor->shape[i] == want && tensor->shape[i] >= 0;
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
  return 0;
}

/* Takes the address of argument `index`, which is checked; that of an empty one may be anything. */
static int take(const cv_entry *entry, int index, const cv_dltensor *tensor, void **data) {
  const size_t size = (size_t)elements[entry->arguments[index].dtype].bits / 8;
  *data = (char *)tensor->data + tensor->byte_offset;
  if (!is_empty(tensor) && (!tensor->data || (uintptr_t)*data % size != 0)) {
    cv_text text = begin(entry, index);
    append(&text, "%s address; pass memory aligned to %zu bytes", tensor->data ? "a misaligned" : "a null",
           size);
    return raise("ValueError", &text);
  }
  return 0;
}

/* The bytes of argument `index` in a call with `images`; of what no memory holds, the most there can be. */
static size_t count_bytes(const cv_entry *entry, int index, int64_t images) {
  const cv_argument *argument = &entry->arguments[index];
  size_t bytes = (size_t)elements[argument->dtype].bits / 8;
  bool huge = __builtin_mul_overflow(bytes, (size_t)images, &bytes);
  for (int i = 0; i < argument->ndim; ++i) {
    huge |= __builtin_mul_overflow(bytes, (size_t)argument->shape[i], &bytes);
  }
  return huge ? SIZE_MAX : bytes;
}

/* Checks that each output has memory of its own: a region writes while it still reads. */
static int check_apart(const cv_entry *entry, void *const *data, int64_t images) {
  for (int i = entry->inputs; i < entry->inputs + entry->outputs; ++i) {
    const size_t bytes = count_bytes(entry, i, images);
    for (int other = 0; bytes > 0 && other < i; ++other) {
      const uintptr_t a = (uintptr_t)data[i], b = (uintptr_t)data[other];
      const size_t taken = count_bytes(entry, other, images);
      if (taken == 0 || (a <= b ? b - a >= bytes : a - b >= taken)) continue;
      cv_text text = begin(entry, i);
      append(&text, "memory that argument %d (%s) has, too; give each output its own", other,
             entry->arguments[other].name);
      return raise("ValueError", &text);
    }
  }
  return 0;
}

/* Is this an address alone, as classic TVM's ahead-of-time executor hands on: a handle, without a shape? */
static bool is_bare(const cv_dltensor *tensor) {
  return tensor->dtype_code == CV_DL_HANDLE && tensor->dtype_bits == 64 && tensor->ndim == 0;
}

/* What a region's status, which is not CONVOY_OK, says to the caller. */
static int raise_status(const cv_entry *entry, int status) {
  cv_text text = {{0}, 0};
  append(&text, "%s: ", entry->name);
  switch (status) {
    case CONVOY_OUT_OF_MEMORY:
      append(&text,
             "scratch memory: expected enough memory for one image, got none; free memory or raise "
             "the limit");
      return raise("MemoryError", &text);
    case CONVOY_NESTED_CALL:
      append(&text,
             "call: expected one from outside the regions of this library, got one from within a "
             "region's run (as from a signal handler), whose threads it would wait for for ever; "
             "make it when that run has returned");
      return raise("RuntimeError", &text);
    default:
      append(&text, "call: expected status 0, got %d; report it", status);
      return raise("RuntimeError", &text);
  }
}

/* Checks that each argument is a tensor with a shape. */
static int check_present(const cv_entry *entry, const cv_call_form *form, const void *args) {
  for (int i = 0; i < entry->inputs + entry->outputs; ++i) {
    int type = 0;
    const cv_dltensor *tensor = form->tensor_at(args, i, &type);
    if (tensor && (tensor->shape || tensor->ndim <= 0)) continue;
    cv_text text = begin(entry, i);
    if (tensor) {
      append(&text, "a null address for the %d lengths of its shape; fill in the shape", tensor->ndim);
      return raise("ValueError", &text);
    }
    append(&text, "a value that is no tensor (TVM type index %d); pass a tensor", type);
    return raise("TypeError", &text);
  }
  return 0;
}

/* Has an open axis no element, nor any output?  Then there is nothing to compute. */
static bool is_nothing(const cv_entry *entry, const cv_call_form *form, const void *args) {
  bool nothing = false;
  int type = 0;
  for (int i = 0; i < entry->sizes; ++i) {
    const cv_open_axis at = entry->open_axes[i];
    const cv_dltensor *tensor = form->tensor_at(args, at.input, &type);
    nothing |= at.axis < tensor->ndim && tensor->shape[at.axis] == 0;
  }
  for (int i = entry->inputs; nothing && i < entry->inputs + entry->outputs; ++i) {
    const cv_dltensor *tensor = form->tensor_at(args, i, &type);
    nothing = is_empty(tensor);
  }
  return nothing;
}

/* Reads the sizes that are known at the call. */
static int read_sizes(const cv_entry *entry, const cv_call_form *form, const void *args, int64_t *sizes) {
  for (int i = 0; i < entry->sizes; ++i) {
    const cv_open_axis at = entry->open_axes[i];
    int type = 0;
    const cv_dltensor *tensor = form->tensor_at(args, at.input, &type);
    if (tensor->ndim != entry->arguments[at.input].ndim) {
      cv_text text = begin(entry, at.input);
      append_found(&text, tensor);
      append(&text, "; pass a tensor of that shape");
      return raise("ValueError", &text);
    }
    sizes[i] = tensor->shape[at.axis] / at.times;
    if (sizes[i] < at.least || sizes[i] > INT32_MAX) {
      cv_text text = begin(entry, at.input);
      append_found(&text, tensor);
      if (sizes[i] < at.least) {
        append(&text, "; pass at least %lld along axis %d", (long long)at.least * at.times, at.axis);
      } else {
        append(&text, "; pass at most %lld along axis %d", (long long)INT32_MAX * at.times, at.axis);
      }
      return raise("ValueError", &text);
    }
  }
  return 0;
}

/* The arguments of `entry` with lengths in place of open ones, which are those of these sizes. */
static void measure(const cv_entry *entry, const int64_t *sizes, int64_t *lengths, cv_argument *arguments) {
  entry->measure(sizes, lengths);
  for (int i = 0; i < entry->inputs + entry->outputs; ++i) {
    arguments[i] = entry->arguments[i];
    arguments[i].shape = lengths;
    lengths += arguments[i].ndim;
  }
}

static int count_lengths(const cv_entry *entry) {
  int lengths = 0;
  for (int i = 0; i < entry->inputs + entry->outputs; ++i) lengths += entry->arguments[i].ndim;
  return lengths;
}

int cv_call(const cv_entry *open_entry, const cv_call_form *form, const void *args, int count) {
  cv_entry measured = *open_entry;
  const cv_entry *entry = open_entry;
  const int total = entry->inputs + entry->outputs;
  void *data[total];
  if (!args) count = 0;
  if (count != total) {
    cv_text text = {{0}, 0};
    append(&text, "%s: arguments: expected %d inputs and %d outputs, got %d; pass the outputs last",
           entry->name, entry->inputs, entry->outputs, count);
    return raise("ValueError", &text);
  }
  const char *missing = cv_missing_vectors(entry->vectors);
  if (missing) {
    cv_text text = {{0}, 0};
    append(
        &text,
        "%s: CPU: expected one with %s, for which the region was compiled, got one without; compile it on "
        "this machine, or for a target whose mcpu names this CPU (haswell has AVX2, x86-64 neither)",
        entry->name, missing);
    return raise("RuntimeError", &text);
  }
  int64_t images = entry->batch, sizes[entry->sizes + 1];
  cv_argument arguments[entry->sizes ? total : 1];
  int64_t lengths[entry->sizes ? count_lengths(entry) + 1 : 1];
  if (check_present(entry, form, args) != 0) return -1;
  if (entry->sizes) {
    if (is_nothing(entry, form, args)) return 0;
    if (read_sizes(entry, form, args, sizes) != 0) return -1;
    measure(entry, sizes, lengths, arguments);
    measured.arguments = arguments;
    entry = &measured;
  }
  for (int i = 0; i < total; ++i) {
    int type = 0;
    const cv_dltensor *tensor = form->tensor_at(args, i, &type);
    const bool described = !(form->has_bare && entry->batch >= 0 && is_bare(tensor));
    if (described && check(entry, i, tensor, &images) != 0) return -1;
    if (take(entry, i, tensor, &data[i]) != 0) return -1;
  }
  if (images == 0) return 0;
  if (check_apart(entry, data, images) != 0) return -1;
  const int status =
      entry->sizes ? entry->open_region((const void *const *)data, data + entry->inputs, images, sizes)
                   : entry->region((const void *const *)data, data + entry->inputs, images);
  if (status == CONVOY_OK) return 0;
  return raise_status(entry, status);
}
