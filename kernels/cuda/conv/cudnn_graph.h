// Thin wrapper around cuDNN's graph API: opaque descriptors that get attributes, are finalized, and
// refer to each other. NVIDIA's C++ frontend is not used, because it also requires a libcudart.so
// if cuDNN is opened at run time, while dpt links the CUDA runtime statically.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dpt {

/// The functions of cuDNN that dpt calls.
struct Cudnn {
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error_string;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};
/// Returns the functions. Throws like cudnn_library().
const Cudnn& cudnn();

/// Returns a message with the failed call and cuDNN's text about the latest failure.
std::string cudnn_words(cudnnStatus_t status, const char* what);

/// Throws ErrorKind::device with cuDNN's text unless `status` is success.
void cudnn_check(cudnnStatus_t status, const char* what);

/// Returns true if the status means only that cuDNN does not support the request.
inline bool cudnn_unsupported(cudnnStatus_t status) {
  return status / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED;
}

/// Owner of a descriptor. Move-only. The objects that it refers to must outlive it.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnDescriptor();

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set_all(name, std::span<const T>(&value, 1));
  }
  template <class T, std::size_t kCount>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::array<T, kCount>& values) {
    return set_all(name, std::span<const T>(values));
  }
  template <class T>
  CudnnDescriptor& set_all(cudnnBackendAttributeName_t name, std::span<const T> values) {
    set_raw(name, type_of<std::remove_const_t<T>>(), static_cast<std::int64_t>(values.size()),
            values.data());
    return *this;
  }
  CudnnDescriptor& link(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
    return *this;
  }
  template <class Descriptors>
  CudnnDescriptor& link_all(cudnnBackendAttributeName_t name, const Descriptors& others) {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const CudnnDescriptor& other : others) raw.push_back(other.get());
    set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()), raw.data());
    return *this;
  }

  /// Sets an attribute that this version of cuDNN may not know.
  template <class T>
  cudnnStatus_t try_set(cudnnBackendAttributeName_t name, const T& value) {
    return cudnn().set_attribute(descriptor_, name, type_of<T>(), 1, &value);
  }

  void finalize() { cudnn_check(try_finalize(), "cudnnBackendFinalize"); }
  cudnnStatus_t try_finalize() { return cudnn().finalize(descriptor_); }

  template <class T>
  T get(cudnnBackendAttributeName_t name) const {
    T value = {};
    get_raw(name, type_of<T>(), 1, &value);
    return value;
  }
  /// Returns the values of an attribute, at most `most` of them.
  template <class T>
  std::vector<T> get_all(cudnnBackendAttributeName_t name, std::int64_t most) const {
    std::vector<T> values(static_cast<std::size_t>(most));
    const std::int64_t count = get_raw(name, type_of<T>(), most, values.data());
    values.resize(static_cast<std::size_t>(count < most ? count : most));
    return values;
  }
  /// Returns the descriptors of `type` that an attribute refers to: at most `most`, or all if
  /// `most` is negative.
  std::vector<CudnnDescriptor> linked(cudnnBackendAttributeName_t name,
                                      cudnnBackendDescriptorType_t type,
                                      std::int64_t most = -1) const;

 private:
  template <class T>
  static constexpr cudnnBackendAttributeType_t type_of() {
    if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
    if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
    if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
    if constexpr (std::is_same_v<T, char>) return CUDNN_TYPE_CHAR;
    if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
    if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
    if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
    if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
    if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
    if constexpr (std::is_same_v<T, cudnnNanPropagation_t>) return CUDNN_TYPE_NAN_PROPOGATION;
    if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
    if constexpr (std::is_same_v<T, cudnnBackendKnobType_t>) return CUDNN_TYPE_KNOB_TYPE;
    if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
    if constexpr (std::is_same_v<T, cudnnBackendBehaviorNote_t>) return CUDNN_TYPE_BEHAVIOR_NOTE;
  }

  void set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               std::int64_t count, const void* values);
  /// Reads up to `room` values of an attribute and returns their number. If `room` is 0, counts all
  /// values.
  std::int64_t get_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       std::int64_t room, void* values) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace dpt
