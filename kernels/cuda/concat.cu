// Concatenates the channels of several activations on a GPU.
#include "kernels/cuda/ops.h"

#include <cassert>

#include "kernels/base/divide.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Copies `columns` units of every row between matrices; the distances between rows are in units.
template <class Unit>
struct CopyColumns {
  Unit* to;
  const Unit* from;
  Divider columns;
  std::int64_t to_row, from_row;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    for (int k = 0; k < kCount; ++k) {
      auto column = static_cast<std::uint32_t>(i + k);
      const std::int64_t row = columns.split(column);
      to[row * to_row + column] = from[row * from_row + column];
    }
  }
};

/// Copies images in the order (H,W,C) to parts of rows in the order (C,H,W), or back.
template <class Unit, bool kToRows>
struct FlattenImages {
  Unit* to;
  const Unit* from;
  std::int64_t channels;
  Divider pixels, elements;  ///< number of pixels, and of elements, of an image
  std::int64_t row;          ///< elements of a whole row

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    for (int k = 0; k < kCount; ++k) {
      auto place = static_cast<std::uint32_t>(i + k);
      const std::int64_t image = elements.split(place);
      std::uint32_t pixel = place;
      const std::int64_t channel = pixels.split(pixel);
      const std::int64_t in_image = image * elements.divisor() + pixel * channels + channel;
      const std::int64_t in_row = image * row + place;
      if constexpr (kToRows) {
        to[in_row] = from[in_image];
      } else {
        to[in_image] = from[in_row];
      }
    }
  }
};

class CudaConcat final : public Op {
 public:
  CudaConcat(const CudaContext& context, const ConcatDesc& desc) : context_(context), desc_(desc) {}
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool separate_gradients() const override { return true; }

  void forward(const OpArgs& args) override {
    if (desc_.flatten) {
      for_images([&](std::size_t k, std::size_t offset) {
        flatten<true>(args.y + offset, k == 0 ? args.x : args.more_x[k - 1], desc_.in[k]);
      });
      return;
    }
    for_parts([&](std::size_t k, std::size_t offset, std::size_t bytes) {
      copy(args.y + offset, pixel_bytes(), k == 0 ? args.x : args.more_x[k - 1], bytes, bytes);
    });
  }
  void backward(const OpArgs& args) override {
    if (desc_.flatten) {
      for_images([&](std::size_t k, std::size_t offset) {
        const DevPtr dx = k == 0 ? args.dx : args.more_dx[k - 1];
        if (dx) flatten<false>(dx, args.dy + offset, desc_.in[k]);
      });
      return;
    }
    for_parts([&](std::size_t k, std::size_t offset, std::size_t bytes) {
      const DevPtr dx = k == 0 ? args.dx : args.more_dx[k - 1];
      if (dx) copy(dx, bytes, args.dy + offset, pixel_bytes(), bytes);
    });
  }
  std::string implementation() const override { return "own"; }

 private:
  std::size_t bytes_of(std::int64_t channels) const {
    return static_cast<std::size_t>(channels) * size_of(desc_.type);
  }
  std::size_t pixel_bytes() const { return bytes_of(desc_.out.c); }

  /// Calls use(input, offset, bytes) for every input, with the place of its channels in a pixel of
  /// y.
  template <class Use>
  void for_parts(const Use& use) const {
    std::int64_t channel = 0;
    for (std::size_t k = 0; k < desc_.in.size(); ++k) {
      use(k, bytes_of(channel), bytes_of(desc_.in[k].c));
      channel += desc_.in[k].c;
    }
  }

  /// Calls use(input, offset) for every input, with its place in a sample of y.
  template <class Use>
  void for_images(const Use& use) const {
    std::int64_t element = 0;
    for (std::size_t k = 0; k < desc_.in.size(); ++k) {
      use(k, bytes_of(element));
      element += desc_.in[k].elements();
    }
  }
  template <bool kToRows>
  void flatten(DevPtr to, DevPtr from, const SampleShape& image) const {
    if (desc_.type == DType::f32) {
      flatten_units<std::uint32_t, kToRows>(to, from, image);
    } else {
      flatten_units<std::uint16_t, kToRows>(to, from, image);
    }
  }
  template <class Unit, bool kToRows>
  void flatten_units(DevPtr to, DevPtr from, const SampleShape& image) const {
    const FlattenImages<Unit, kToRows> body = {
        device<Unit>(to),           device<const Unit>(from),  image.c,
        Divider(image.h * image.w), Divider(image.elements()), desc_.out.c};
    for_each_pack<1>(context_, desc_.batch * image.elements(), false, body);
  }

  /// Copies `bytes` of every pixel, in the largest units that divide all addresses and sizes.
  void copy(DevPtr to, std::size_t to_row, DevPtr from, std::size_t from_row,
            std::size_t bytes) const {
    const std::uintptr_t all = to.address | from.address | to_row | from_row | bytes;
    if (all % 16 == 0) {
      copy_units<Pack<std::uint32_t, 4>>(to, to_row, from, from_row, bytes);
    } else if (all % 8 == 0) {
      copy_units<Pack<std::uint32_t, 2>>(to, to_row, from, from_row, bytes);
    } else if (all % 4 == 0) {
      copy_units<std::uint32_t>(to, to_row, from, from_row, bytes);
    } else {
      copy_units<std::uint16_t>(to, to_row, from, from_row, bytes);
    }
  }
  template <class Unit>
  void copy_units(DevPtr to, std::size_t to_row, DevPtr from, std::size_t from_row,
                  std::size_t bytes) const {
    const auto units = [](std::size_t count) {
      return static_cast<std::int64_t>(count / sizeof(Unit));
    };
    const CopyColumns<Unit> body = {device<Unit>(to), device<const Unit>(from),
                                    Divider(units(bytes)), units(to_row), units(from_row)};
    for_each_pack<1>(context_, desc_.batch * desc_.out.h * desc_.out.w * units(bytes), false, body);
  }

  const CudaContext& context_;
  ConcatDesc desc_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ConcatDesc& desc) {
  check_cuda_desc(context, "concat", desc.type, desc.batch);
  check_indices(context, "concat", desc.batch * desc.out.elements());
  assert(desc.in.size() >= 2 && desc.in.size() <= static_cast<std::size_t>(kMaxInputs));
  return std::make_unique<CudaConcat>(context, desc);
}

}  // namespace dpt
