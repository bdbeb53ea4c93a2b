#include "kernels/cuda/conv/cudnn_graph.h"

#include <dlfcn.h>

#include "kernels/base/error.h"
#include "kernels/cuda/runtime/libraries.h"

namespace dpt {
namespace {

template <class Function>
void find(Function*& function, const char* symbol) {
  dlerror();
  void* address = dlsym(cudnn_library(), symbol);
  if (!address) {
    const char* why = dlerror();
    fail(ErrorKind::device, "cuDNN cannot be used: {}", why ? why : symbol);
  }
  function = reinterpret_cast<Function*>(address);
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn functions = [] {
    Cudnn found = {};
    find(found.create, "cudnnCreate");
    find(found.destroy, "cudnnDestroy");
    find(found.set_stream, "cudnnSetStream");
    find(found.error_string, "cudnnGetErrorString");
    find(found.last_error_string, "cudnnGetLastErrorString");
    find(found.create_descriptor, "cudnnBackendCreateDescriptor");
    find(found.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    find(found.set_attribute, "cudnnBackendSetAttribute");
    find(found.get_attribute, "cudnnBackendGetAttribute");
    find(found.finalize, "cudnnBackendFinalize");
    find(found.execute, "cudnnBackendExecute");
    return found;
  }();
  return functions;
}

std::string cudnn_words(cudnnStatus_t status, const char* what) {
  std::array<char, 2048> words = {};
  cudnn().last_error_string(words.data(), words.size() - 1);
  int device = -1;
  const std::string who =
      cudaGetDevice(&device) == cudaSuccess ? fmt::format("cuda:{}", device) : "cuDNN";
  return fmt::format("{}: {} failed: {}: {}", who, what, cudnn().error_string(status),
                     words.data());
}

void cudnn_check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(ErrorKind::device, "{}", cudnn_words(status, what));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnn_check(cudnn().create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_) cudnn().destroy_descriptor(descriptor_);
}

std::vector<CudnnDescriptor> CudnnDescriptor::linked(cudnnBackendAttributeName_t name,
                                                     cudnnBackendDescriptorType_t type,
                                                     std::int64_t most) const {
  // cuDNN fills descriptors that the caller has created.
  if (most < 0) most = get_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<CudnnDescriptor> others;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < most; ++i) raw.push_back(others.emplace_back(type).get());
  const std::int64_t count =
      most == 0 ? 0 : get_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raw.data());
  while (static_cast<std::int64_t>(others.size()) > count) others.pop_back();
  return others;
}

void CudnnDescriptor::set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                              std::int64_t count, const void* values) {
  cudnn_check(cudnn().set_attribute(descriptor_, name, type, count, values),
              "cudnnBackendSetAttribute");
}

std::int64_t CudnnDescriptor::get_raw(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, std::int64_t room,
                                      void* values) const {
  std::int64_t count = 0;
  cudnn_check(cudnn().get_attribute(descriptor_, name, type, room, &count, values),
              "cudnnBackendGetAttribute");
  return count;
}

}  // namespace dpt
