// Stand-in for the driver's library, libcuda.so.1, for convolution_plans --compiled. Without that
// library, cuDNN lists no engine that it compiles at run time. With the stand-in it lists and
// compiles them, for GPUs that are only described to it.
//
// The stand-in accepts kernels, finds no GPU, and refuses everything else.
#include <dlfcn.h>

#include <cstdint>

namespace {

constexpr int kSuccess = 0;            // CUDA_SUCCESS
constexpr int kStubLibrary = 34;       // CUDA_ERROR_STUB_LIBRARY
constexpr int kNotFound = 500;         // CUDA_ERROR_NOT_FOUND
constexpr int kDriverVersion = 13000;  // as in tests/support/described_gpu.h

/// Stores a handle that is valid but has no content.
int accept(void** handle) {
  static int content = 0;
  *handle = &content;
  return kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned) {
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "refused by dpt's stand-in for libcuda.so.1";
  return kSuccess;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_STUB_LIBRARY";
  return kSuccess;
}

int cuLibraryLoadData(void** library, ...) {
  return accept(library);
}
int cuLibraryUnload(void*) {
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, ...) {
  return accept(kernel);
}
int cuLibraryGetModule(void** module, ...) {
  return accept(module);
}
int cuKernelGetFunction(void** function, ...) {
  return accept(function);
}
int cuModuleLoadData(void** module, ...) {
  return accept(module);
}
int cuModuleLoadDataEx(void** module, ...) {
  return accept(module);
}
int cuModuleUnload(void*) {
  return kSuccess;
}
int cuModuleGetFunction(void** function, ...) {
  return accept(function);
}
int cuKernelSetAttribute(...) {
  return kSuccess;
}
int cuFuncSetAttribute(...) {
  return kSuccess;
}
int cuKernelGetAttribute(int* value, ...) {
  *value = 0;
  return kSuccess;
}
int cuFuncGetAttribute(int* value, ...) {
  *value = 0;
  return kSuccess;
}

int cuGetProcAddress_v2(const char* symbol, void** function, int, std::uint64_t, int* status) {
  void* const self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
  *function = self ? dlsym(self, symbol) : nullptr;
  if (self) dlclose(self);
  if (status) *status = *function ? 0 : 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
  return *function ? kSuccess : kNotFound;
}
int cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// Functions that cuDNN or the CUDA runtime looks up. A plan compiles even if they fail.
#define DPT_REFUSE(name) \
  int name(...) {        \
    return kStubLibrary; \
  }
DPT_REFUSE(cuCtxGetCurrent)
DPT_REFUSE(cuCtxGetDevice)
DPT_REFUSE(cuCtxGetLimit)
DPT_REFUSE(cuCtxPopCurrent)
DPT_REFUSE(cuCtxPushCurrent)
DPT_REFUSE(cuDeviceGet)
DPT_REFUSE(cuDeviceGetAttribute)
DPT_REFUSE(cuDevicePrimaryCtxRelease)
DPT_REFUSE(cuDevicePrimaryCtxReset)
DPT_REFUSE(cuDevicePrimaryCtxRetain)
DPT_REFUSE(cuGetExportTable)
DPT_REFUSE(cuLaunchCooperativeKernel)
DPT_REFUSE(cuLaunchKernel)
DPT_REFUSE(cuLaunchKernelEx)
DPT_REFUSE(cuLibraryLoadFromFile)
DPT_REFUSE(cuLinkAddData)
DPT_REFUSE(cuLinkAddData_v2)
DPT_REFUSE(cuLinkAddFile_v2)
DPT_REFUSE(cuLinkComplete)
DPT_REFUSE(cuLinkCreate)
DPT_REFUSE(cuLinkCreate_v2)
DPT_REFUSE(cuLinkDestroy)
DPT_REFUSE(cuMemcpyDtoH_v2)
DPT_REFUSE(cuModuleGetGlobal_v2)
DPT_REFUSE(cuModuleLoadFatBinary)
DPT_REFUSE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
DPT_REFUSE(cuOccupancyMaxPotentialClusterSize)
DPT_REFUSE(cuStreamGetCtx)
DPT_REFUSE(cuStreamSynchronize)
DPT_REFUSE(cuTensorMapEncodeTiled)
#undef DPT_REFUSE

}  // extern "C"
#pragma GCC visibility pop
