// Element types, device addresses and sample shapes: the vocabulary of the backend contract.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dpt {

enum class DType : std::uint8_t { f32, bf16, u8, i32, i64 };

/// Returns the number of bytes of one element.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
    case DType::i64:
      return 8;
  }
  return 0;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
  }
  return "?";
}

/// An address in a device's memory. The host never dereferences it. Only kernels of the backend
/// that allocated the memory do.
struct DevPtr {
  std::uintptr_t address = 0;

  explicit operator bool() const { return address != 0; }
  DevPtr operator+(std::size_t bytes) const { return {address + bytes}; }
  bool operator==(const DevPtr&) const = default;
};

/// Returns an address as a pointer. REQUIRES: the device is the host itself.
template <class T = float>
T* host(DevPtr ptr) {
  return reinterpret_cast<T*>(ptr.address);
}

/// A half-open range of integers, such as positions in an epoch's order or samples of a batch.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The shape of one sample's activation, without the batch: (H,W,C) in memory (NHWC). A flat
/// vector of n features is h = w = 1, c = n.
struct SampleShape {
  std::int64_t h = 1;
  std::int64_t w = 1;
  std::int64_t c = 1;

  std::int64_t elements() const { return h * w * c; }
  bool operator==(const SampleShape&) const = default;
};

/// Kind of targets of a data set's samples.
enum class TargetKind : std::uint8_t {
  class_index,  ///< a label
  soft_labels,  ///< a probability for each class; the label is the most probable class
  multi_hot,    ///< 0 to 1 for each output, the degree to which the output applies; no label
  values        ///< a number for each output; no label
};

/// Returns true if samples with this kind of targets have labels.
constexpr bool has_labels(TargetKind kind) {
  return kind == TargetKind::class_index || kind == TargetKind::soft_labels;
}

/// Shape of the samples' targets other than labels: a row of floats per sample.
struct TargetShape {
  TargetKind kind = TargetKind::class_index;
  std::int64_t values = 0;  ///< number of target values per sample; 0 for class_index
  bool weighted = false;    ///< true if the row ends with the sample's weight

  constexpr std::int64_t floats() const { return values + (weighted ? 1 : 0); }
  bool operator==(const TargetShape&) const = default;
};

/// A pair for the two spatial axes, (height, width), like PyTorch's int-or-tuple arguments.
struct Size2 {
  std::int64_t h = 1;
  std::int64_t w = 1;
  bool operator==(const Size2&) const = default;
};

}  // namespace dpt
