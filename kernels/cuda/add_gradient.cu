#include "kernels/cuda/add_gradient.h"

#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

template <class T>
struct AddGradient {
  float* to;
  const T* from;
  bool add;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(from + i);
    Pack<float, kCount> result = {};
    if (add) result = load_pack<kCount>(to + i);
    for (int k = 0; k < kCount; ++k) result.v[k] += to_float(values.v[k]);
    store_pack<kCount>(to + i, result);
  }
};

template <class T>
void queue(const CudaContext& context, DevPtr to, DevPtr from, std::int64_t count, bool add) {
  for_each_pack<4>(context, count, aligned_to(16, to) && aligned_to(4 * sizeof(T), from),
                   AddGradient<T>{device<float>(to), device<const T>(from), add});
}

}  // namespace

void add_gradient(const CudaContext& context, DevPtr to, DevPtr from, DType type,
                  std::int64_t count, GradWrite write) {
  const bool add = write == GradWrite::add;
  if (type == DType::bf16) {
    queue<Bf16>(context, to, from, count, add);
  } else {
    queue<float>(context, to, from, count, add);
  }
}

}  // namespace dpt
