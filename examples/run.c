/* Run a library that Convoy made, in C: neither Python nor Convoy is needed, only TVM's runtime.
 *
 *   P=$(python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
 *   cc run.c -o run -I$P/tvm_ffi/include -L$P/tvm_ffi/lib -ltvm_ffi -ldl
 *   LD_LIBRARY_PATH=$P/tvm/lib:$P/tvm_ffi/lib ./run $PWD/squeezenet.so 1,3,224,224 image.raw scores.raw
 *
 * It is for one input and one output of float32, as raw numbers in a file (numpy's array.tofile).
 * Languages that can call C can do the same.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

static void fail(const char *what, const char *why) {
  fprintf(stderr, "run: %s: %s\n", what, why);
  exit(1);
}

/* Ends the program with TVM's own message if a call of it failed. */
static void check(const char *what, int code) {
  if (code == 0) return;
  TVMFFIObjectHandle error;
  TVMFFIErrorMoveFromRaised(&error);
  fail(what, ((TVMFFIErrorCell *)((char *)error + sizeof(TVMFFIObject)))->message.data);
}

static TVMFFIAny number(int64_t value) {
  return (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = value};
}

static TVMFFIAny text(const char *value) {
  return (TVMFFIAny){.type_index = kTVMFFIRawStr, .v_c_str = value};
}

static TVMFFIAny call(const char *what, TVMFFIObjectHandle function, TVMFFIAny *arguments, int count) {
  TVMFFIAny result = {.type_index = kTVMFFINone};
  check(what, TVMFFIFunctionCall(function, arguments, count, &result));
  return result;
}

static TVMFFIObjectHandle global(const char *name) {
  TVMFFIByteArray bytes = {name, strlen(name)};
  TVMFFIObjectHandle function;
  check(name, TVMFFIFunctionGetGlobal(&bytes, &function));
  return function;
}

/* A function of a module, such as the virtual machine's. */
static TVMFFIObjectHandle function_of(TVMFFIAny module, const char *name) {
  TVMFFIAny arguments[] = {module, text(name), {.type_index = kTVMFFIBool, .v_int64 = 0}};
  TVMFFIAny found = call(name, global("ffi.ModuleGetFunction"), arguments, 3);
  if (found.type_index != kTVMFFIFunction) fail(name, "the library has no function of this name");
  return found.v_obj;
}

int main(int count, char **arguments) {
  if (count != 5) fail("usage", "run /path/to/library.so 1,3,224,224 input.raw output.raw");
  if (!dlopen("libtvm_runtime.so", RTLD_NOW | RTLD_GLOBAL)) fail("libtvm_runtime.so", dlerror());

  int64_t shape[8], size = 1;
  int axes = 0;
  for (char *at = strtok(arguments[2], ","); at && axes < 8; at = strtok(NULL, ",")) {
    size *= shape[axes++] = atoll(at);
  }
  float *input = aligned_alloc(64, (size_t)(size * 4 + 63) / 64 * 64);
  FILE *file = fopen(arguments[3], "rb");
  if (!file) fail(arguments[3], "it could not be opened");
  if (!input || fread(input, 4, (size_t)size, file) != (size_t)size) {
    fail(arguments[3], "there are not as many numbers in it as the shape says");
  }
  fclose(file);

  TVMFFIAny path = text(arguments[1]);
  TVMFFIAny library = call(arguments[1], global("ffi.ModuleLoadFromFile"), &path, 1);
  TVMFFIAny machine = call("load", function_of(library, "vm_load_executable"), NULL, 0);
  /* The CPU, and an allocator that keeps memory for the next run. */
  TVMFFIAny device[] = {number(1), number(0), number(2)};
  call("start", function_of(machine, "vm_initialization"), device, 3);

  /* A plain DLTensor is lent for the time of the call. */
  DLTensor image = {.data = input, .device = {kDLCPU, 0}, .ndim = axes, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  TVMFFIAny argument = {.type_index = kTVMFFIDLTensorPtr, .v_ptr = &image};
  TVMFFIAny result = call("main", function_of(machine, "main"), &argument, 1);
  if (result.type_index != kTVMFFITensor) fail("main", "expected one output, got several");

  const DLTensor *scores = (const DLTensor *)((char *)result.v_obj + sizeof(TVMFFIObject));
  if (scores->dtype.code != kDLFloat || scores->dtype.bits != 32) fail("main", "expected an output of float32");
  const char *first = (const char *)scores->data + scores->byte_offset;
  int64_t values = 1;
  for (int axis = 0; axis < scores->ndim; axis++) values *= scores->shape[axis];
  file = fopen(arguments[4], "wb");
  if (!file || fwrite(first, 4, (size_t)values, file) != (size_t)values || fclose(file)) {
    fail(arguments[4], "it could not be written");
  }
  printf("%lld values\n", (long long)values);
  return 0;
}
