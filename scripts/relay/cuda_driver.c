/* A CUDA driver that refuses everything: the bundled TVM is linked against libcuda.so.1 and would
 * not load on a machine without a GPU.  Each function returns CUDA_ERROR_NO_DEVICE. */

#define REFUSE(name) \
  int name(void) { return 100; }

REFUSE(cuDeviceGetName)
REFUSE(cuFuncSetAttribute)
REFUSE(cuGetErrorName)
REFUSE(cuLaunchKernel)
REFUSE(cuMemsetD32_v2)
REFUSE(cuModuleGetFunction)
REFUSE(cuModuleGetGlobal_v2)
REFUSE(cuModuleLoadData)
REFUSE(cuModuleUnload)
