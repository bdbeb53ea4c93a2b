#include "kernels/cpu/onednn.h"

#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/base/align.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/common/bf16.h"
#include "kernels/common/conv_padding.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"

namespace dpt::onednn {
namespace {

/// Sets the size of the calling thread's OpenMP team. The team must be complete (OMP_DYNAMIC would
/// allow fewer threads), because oneDNN's barriers wait for all requested threads.
void use_team(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}

using dnnl::memory;
using Tag = memory::format_tag;

/// Returns the CPU engine. It holds no state of ours, so all threads share it.
const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::desc describe(const memory::dims& dims, Tag tag, DType type = DType::f32) {
  return {dims, type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32, tag};
}

/// Returns the type of the weights that a pass reads, or of the weight gradient that it writes.
DType weight_type(DType type, Pass pass) {
  return pass == Pass::backward_weights ? DType::f32 : type;
}

/// Throws unless the processor has bf16 instructions. Without them, oneDNN has slow loops on some
/// processors and none on others.
void require_bf16(const char* what, DType type) {
  if (type != DType::bf16 || has_bf16()) return;
  std::string processor = instruction_set();
  for (char& letter : processor) letter = static_cast<char>(std::toupper(letter));
  fail(ErrorKind::device,
       "cpu: {} in bf16 is not available: this processor ({}) has no bf16 instructions "
       "(AVX512-BF16 or AMX); use train.precision=fp32",
       what, processor);
}

dnnl::primitive_attr attributes(bool relu) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
    ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#else
    ops.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#endif
    attr.set_post_ops(ops);
  }
  return attr;
}

/// Creates the description of a primitive. oneDNN 2.x needs an operation descriptor in between; 3.x
/// takes the fields directly.
template <class Operation, class Hint, class... Fields>
typename Operation::primitive_desc make_desc(const dnnl::primitive_attr& attr, const Hint& hint,
                                             const Fields&... fields) {
  using Desc = typename Operation::primitive_desc;
#if DNNL_VERSION_MAJOR >= 3
  if constexpr (std::is_same_v<Hint, std::nullptr_t>) {
    return Desc(engine(), fields..., attr);
  } else {
    return Desc(engine(), fields..., hint, attr);
  }
#else
  const typename Operation::desc operation(fields...);
  if constexpr (std::is_same_v<Hint, std::nullptr_t>) {
    return Desc(operation, attr, engine());
  } else {
    return Desc(operation, attr, engine(), hint);
  }
#endif
}

/// Returns a memory object without memory: every run sets the address.
memory unbound(const memory::desc& desc) {
  return {desc, engine(), nullptr};
}

/// Sets the address of a memory object if it has changed. (Each time an address is set, oneDNN
/// clears the padding of blocked layouts.) Not called bind, because a std::byte* argument would
/// also find std::bind.
void point_at(const memory& object, void* address) {
  void* known = object.get_data_handle();
  if (known != address) object.set_data_handle(address);
}

/// A call whose argument list is built only once. oneDNN's C++ `execute` would build a vector in
/// every call.
struct Call {
  dnnl::primitive primitive;
  std::vector<dnnl_exec_arg_t> args;

  void add(int which, const memory& value) { args.push_back({which, value.get()}); }
  void run(const dnnl::stream& stream) const {
    const dnnl_status_t status = dnnl_primitive_execute(primitive.get(), stream.get(),
                                                        static_cast<int>(args.size()), args.data());
    if (status != dnnl_success) {
      fail(ErrorKind::device, "cpu: oneDNN failed to run a kernel (status {})",
           static_cast<int>(status));
    }
  }
};

bool starts_with_ref(const std::string& name) {
  return name.starts_with("ref") || name.starts_with("simple");
}

}  // namespace

struct Primitive::Impl {
  Pass pass = Pass::forward;
  int threads = 1;
  std::string implementation;
  dnnl::stream stream{engine()};
  Call main;
  memory x, y, weights, bias, scratchpad;
  /// True if plain weights are reordered to oneDNN's layout (or back, for their gradient).
  bool reorders = false;
  Call reorder;
  memory plain, reorder_scratchpad;
  std::size_t weight_count = 0, bias_count = 0;  ///< weight_count: used in backward_weights only
  bool widens = false;  ///< x and y are in bf16, and the primitive takes copies in fp32
  /// Byte offsets in scratch.
  std::size_t own_weights_at = 0, plain_at = 0, bias_at = 0, scratchpad_at = 0, wide_x_at = 0,
              wide_y_at = 0, bytes = 0;

  void set_weights(const memory::desc& own, const memory::desc& plain_desc) {
    weights = unbound(own);
    if (pass == Pass::backward_weights) weight_count = plain_desc.get_size() / sizeof(float);
    reorders = own != plain_desc;
    if (!reorders) return;
    plain = unbound(plain_desc);
    const bool back = pass == Pass::backward_weights;
    const auto& from = back ? weights : plain;
    const auto& to = back ? plain : weights;
    const dnnl::reorder::primitive_desc desc(engine(), from.get_desc(), engine(), to.get_desc(),
                                             attributes(false));
    reorder.primitive = dnnl::reorder(desc);
    reorder_scratchpad = unbound(desc.scratchpad_desc());
    reorder.add(DNNL_ARG_FROM, from);
    reorder.add(DNNL_ARG_TO, to);
    reorder.add(DNNL_ARG_SCRATCHPAD, reorder_scratchpad);
  }

  /// Assigns an offset to every intermediate: oneDNN's weights, then the buffers that
  /// GradWrite::add needs, then the scratchpad of the primitive that runs.
  void lay_out() {
    const std::size_t weight_bytes = aligned(weight_count * sizeof(float));
    std::size_t at = 0;
    own_weights_at = at;
    if (reorders) at += aligned(weights.get_desc().get_size());
    if (pass == Pass::backward_weights) {
      plain_at = at;
      at += weight_bytes;
      bias_at = at;
      at += aligned(bias_count * sizeof(float));
    }
    scratchpad_at = at;
    std::size_t pad = scratchpad.get_desc().get_size();
    if (reorders) pad = std::max(pad, reorder_scratchpad.get_desc().get_size());
    bytes = at + aligned(pad);
    if (!widens) return;
    wide_x_at = bytes;
    wide_y_at = wide_x_at + aligned(x.get_desc().get_size());
    bytes = wide_y_at + aligned(y.get_desc().get_size());
  }

  void run(const Tensors& t) {
    // The OpenMP team size belongs to the calling thread, and another Backend may have changed it.
    use_team(threads);
    auto* scratch = host<std::byte>(t.scratch);
    point_at(x, widens ? widened(x, t.x, scratch + wide_x_at) : host<void>(t.x));
    point_at(y, widens ? widened(y, t.y, scratch + wide_y_at) : host<void>(t.y));
    point_at(scratchpad, scratch + scratchpad_at);
    if (reorders) point_at(reorder_scratchpad, scratch + scratchpad_at);
    if (pass == Pass::backward_weights) {
      run_backward_weights(t);
      return;
    }
    if (bias_count > 0) point_at(bias, host<void>(t.bias));
    if (reorders) {
      point_at(plain, host<void>(t.weights));
      point_at(weights, scratch + own_weights_at);
      reorder.run(stream);
    } else {
      point_at(weights, host<void>(t.weights));
    }
    main.run(stream);
  }

  /// Copies the bf16 values of a tensor to `to`, in fp32; returns `to`.
  static void* widened(const memory& object, DevPtr values, std::byte* to) {
    const auto* from = host<const Bf16>(values);
    auto* wide = reinterpret_cast<float*>(to);
    const std::size_t count = object.get_desc().get_size() / sizeof(float);
    for (std::size_t i = 0; i < count; ++i) wide[i] = to_float(from[i]);
    return wide;
  }

  void run_backward_weights(const Tensors& t) {
    const bool add = t.write == GradWrite::add;
    float* to = host(add ? t.scratch + plain_at : t.weights);
    float* to_bias = host(add ? t.scratch + bias_at : t.bias);
    point_at(weights, reorders ? host(t.scratch + own_weights_at) : to);
    if (bias_count > 0) point_at(bias, to_bias);
    main.run(stream);
    if (reorders) {
      point_at(plain, to);
      reorder.run(stream);
    }
    if (!add) return;
    const auto add_to = [](DevPtr sum, const float* part, std::size_t count) {
      cpu_add(host(sum), host(sum), part, static_cast<std::int64_t>(count));
    };
    add_to(t.weights, to, weight_count);
    add_to(t.bias, to_bias, bias_count);
  }
};

Primitive::Primitive(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Primitive::Primitive(Primitive&&) noexcept = default;
Primitive& Primitive::operator=(Primitive&&) noexcept = default;
Primitive::~Primitive() = default;
std::size_t Primitive::scratch_bytes() const {
  return impl_->bytes;
}
const std::string& Primitive::implementation() const {
  return impl_->implementation;
}
bool Primitive::is_reference() const {
  return starts_with_ref(impl_->implementation);
}
void Primitive::run(const Tensors& tensors) {
  impl_->run(tensors);
}

std::size_t Passes::scratch_bytes() const {
  return std::max({forward.scratch_bytes(), weights ? weights->scratch_bytes() : 0,
                   data ? data->scratch_bytes() : 0});
}
std::string Passes::implementation() const {
  std::string text = "forward " + forward.implementation();
  if (weights) text += ", weights " + weights->implementation();
  if (data) text += ", data " + data->implementation();
  return text;
}

namespace {

/// The arguments of one pass, as oneDNN names them.
struct ArgNames {
  int x, y, weights, bias;
};
constexpr ArgNames arg_names(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS};
    case Pass::backward_data:
      return {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, 0};
    case Pass::backward_weights:
      return {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS};
  }
  return {};
}

/// Creates the Primitive of an implementation that oneDNN has chosen. `x` and `y` describe the
/// plain activations. oneDNN takes them unchanged or, if `widens`, in fp32.
template <class Operation>
Primitive finish(const typename Operation::primitive_desc& desc, Pass pass, int threads,
                 const memory::desc& x, const memory::desc& y, const memory::desc& weights,
                 const memory::desc& plain_weights, const memory::desc* bias, bool widens = false) {
  auto impl = std::make_unique<Primitive::Impl>();
  impl->widens = widens;
  impl->pass = pass;
  impl->threads = threads;
  impl->implementation = desc.impl_info_str();
  impl->main.primitive = Operation(desc);
  impl->x = unbound(x);
  impl->y = unbound(y);
  impl->set_weights(weights, plain_weights);
  impl->scratchpad = unbound(desc.scratchpad_desc());
  const ArgNames names = arg_names(pass);
  impl->main.add(names.x, impl->x);
  impl->main.add(names.y, impl->y);
  impl->main.add(names.weights, impl->weights);
  impl->main.add(DNNL_ARG_SCRATCHPAD, impl->scratchpad);
  if (bias) {
    impl->bias = unbound(*bias);
    impl->bias_count = bias->get_size() / sizeof(float);
    impl->main.add(names.bias, impl->bias);
  }
  impl->lay_out();
  return Primitive(std::move(impl));
}

/// Returns true for linear layers whose weight gradient oneDNN's brgemm leaves partly unwritten
/// (seen in 2.6.3, with AVX-512). It computes 64 outputs at a time. If the number of inputs is a
/// multiple of 16 above 6,144, it computes only the first 16 or fewer of the remaining outputs.
bool is_wrong_in_brgemm(const LinearDesc& d) {
  return d.in > 6144 && d.in % 16 == 0 && d.out > 64 && ceil_div(d.out, std::int64_t{16}) % 4 != 0;
}

/// Returns true for oneDNN's bf16 kernels of the weight gradient that may read or write the wrong
/// memory (seen in 2.6.3). They do so if a tap of the kernel sees only padding, and in some dilated
/// shapes.
bool is_wrong_in_bf16(const std::string& implementation) {
  return implementation.starts_with("jit_bf16");
}

/// Returns true for implementations that are wrong (seen in 2.6.3). The weight gradient of strided
/// 1x1 kernels writes past the end of its scratch memory if the channels do not fill whole vectors.
/// The data gradient of 1x1 kernels in bf16 loses a part of the output channels if their number is
/// odd.
bool is_wrong(const Conv2dDesc& d, Pass pass, const std::string& implementation) {
  if (pass == Pass::backward_weights) {
    return implementation.starts_with("jit_1x1") && d.stride != Size2{1, 1} &&
           d.in.c / d.groups % 16 != 0;
  }
  return pass == Pass::backward_data && implementation.starts_with("jit_bf16_1x1") &&
         d.conv_out.c / d.groups % 2 != 0;
}

/// Moves `desc` on to the first implementation that is not wrong.
template <class Desc>
void skip_wrong(Desc& desc, const Conv2dDesc& d, Pass pass) {
  while (is_wrong(d, pass, desc.impl_info_str())) {
    if (!desc.next_impl()) {
      fail(ErrorKind::device, "cpu: oneDNN has only a wrong kernel for a {}x{} convolution",
           d.kernel.h, d.kernel.w);
    }
  }
}

memory::dims conv_weight_dims(const Conv2dDesc& d) {
  const std::int64_t g = d.groups;
  const std::int64_t out = d.conv_out.c, in = d.in.c;
  if (g == 1) return {out, in, d.kernel.h, d.kernel.w};
  return {g, out / g, in / g, d.kernel.h, d.kernel.w};
}

/// Creates the primitive for make_convolution. If `widens`, `d` is in fp32, and the primitive
/// computes the weight gradient from activations in bf16.
Primitive convolution(const Conv2dDesc& d, Pass pass, bool fuse_relu, int threads, bool widens) {
  const memory::desc x = describe({d.batch, d.in.c, d.in.h, d.in.w}, Tag::nhwc, d.type);
  const memory::desc y =
      describe({d.batch, d.conv_out.c, d.conv_out.h, d.conv_out.w}, Tag::nhwc, d.type);
  const memory::desc forward_any = describe(conv_weight_dims(d), Tag::any, d.type);
  const DType type = weight_type(d.type, pass);
  const memory::desc any = describe(conv_weight_dims(d), Tag::any, type);
  const memory::desc plain =
      describe(conv_weight_dims(d), d.groups == 1 ? Tag::ohwi : Tag::gohwi, type);
  const memory::desc bias = describe({d.conv_out.c}, Tag::a);
  const memory::dims strides{d.stride.h, d.stride.w};
  const memory::dims dilates{d.dilation.h - 1, d.dilation.w - 1};  // 0 is no dilation
  const memory::dims begin{d.padding.h, d.padding.w};
  const Size2 behind = end_padding(d, d.conv_out);
  const memory::dims end{behind.h, behind.w};
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  try {
    const auto forward_desc = [&](bool relu) {
      const auto prop =
          d.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
      const auto attr = attributes(relu);
      using Forward = dnnl::convolution_forward;
      return d.bias ? make_desc<Forward>(attr, nullptr, prop, kDirect, x, forward_any, bias, y,
                                         strides, dilates, begin, end)
                    : make_desc<Forward>(attr, nullptr, prop, kDirect, x, forward_any, y, strides,
                                         dilates, begin, end);
    };
    if (pass == Pass::forward) {
      const auto desc = forward_desc(fuse_relu);
      return finish<dnnl::convolution_forward>(desc, pass, threads, x, y, desc.weights_desc(),
                                               plain, d.bias ? &bias : nullptr);
    }
    const auto hint = forward_desc(false);
    const auto attr = attributes(false);
    if (pass == Pass::backward_data) {
      using Backward = dnnl::convolution_backward_data;
      auto desc = make_desc<Backward>(attr, hint, kDirect, x, any, y, strides, dilates, begin, end);
      skip_wrong(desc, d, pass);
      return finish<Backward>(desc, pass, threads, x, y, desc.weights_desc(), plain, nullptr);
    }
    using Backward = dnnl::convolution_backward_weights;
    auto desc =
        d.bias ? make_desc<Backward>(attr, hint, kDirect, x, any, bias, y, strides, dilates, begin,
                                     end)
               : make_desc<Backward>(attr, hint, kDirect, x, any, y, strides, dilates, begin, end);
    skip_wrong(desc, d, pass);
    if (d.type == DType::bf16 && is_wrong_in_bf16(desc.impl_info_str())) {
      Conv2dDesc wide = d;
      wide.type = DType::f32;
      return convolution(wide, pass, fuse_relu, threads, true);
    }
    return finish<Backward>(desc, pass, threads, x, y, desc.diff_weights_desc(), plain,
                            d.bias ? &bias : nullptr, widens);
  } catch (const dnnl::error& error) {
    fail(ErrorKind::device,
         "cpu: oneDNN cannot create a convolution {}x{}x{} -> {}x{}x{} ({}x{}): {}", d.in.c, d.in.h,
         d.in.w, d.conv_out.c, d.conv_out.h, d.conv_out.w, d.kernel.h, d.kernel.w, error.what());
  }
}

}  // namespace

Primitive make_convolution(const Conv2dDesc& d, Pass pass, bool fuse_relu, int threads) {
  require_bf16("a convolution", d.type);
  use_team(threads);
  return convolution(d, pass, fuse_relu, threads, false);
}

Primitive make_linear(const LinearDesc& d, Pass pass, bool fuse_relu, int threads) {
  require_bf16("a linear layer", d.type);
  use_team(threads);
  const memory::desc x = describe({d.batch, d.in}, Tag::ab, d.type);
  const memory::desc y = describe({d.batch, d.out}, Tag::ab, d.type);
  const memory::desc forward_any = describe({d.out, d.in}, Tag::any, d.type);
  const DType type = weight_type(d.type, pass);
  const memory::desc any = describe({d.out, d.in}, Tag::any, type);
  const memory::desc plain = describe({d.out, d.in}, Tag::ab, type);
  const memory::desc bias = describe({d.out}, Tag::a);
  try {
    const auto forward_desc = [&](bool relu) {
      const auto prop =
          d.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
      using Forward = dnnl::inner_product_forward;
      const auto attr = attributes(relu);
      return d.bias ? make_desc<Forward>(attr, nullptr, prop, x, forward_any, bias, y)
                    : make_desc<Forward>(attr, nullptr, prop, x, forward_any, y);
    };
    if (pass == Pass::forward) {
      const auto desc = forward_desc(fuse_relu);
      return finish<dnnl::inner_product_forward>(desc, pass, threads, x, y, desc.weights_desc(),
                                                 plain, d.bias ? &bias : nullptr);
    }
    const auto hint = forward_desc(false);
    const auto attr = attributes(false);
    if (pass == Pass::backward_data) {
      using Backward = dnnl::inner_product_backward_data;
      const auto desc = make_desc<Backward>(attr, hint, x, any, y);
      return finish<Backward>(desc, pass, threads, x, y, desc.weights_desc(), plain, nullptr);
    }
    using Backward = dnnl::inner_product_backward_weights;
    // brgemm needs a layout of its own, so a plain layout excludes it.
    const memory::desc& layout = is_wrong_in_brgemm(d) ? plain : any;
    const auto desc = d.bias ? make_desc<Backward>(attr, hint, x, layout, bias, y)
                             : make_desc<Backward>(attr, hint, x, layout, y);
    return finish<Backward>(desc, pass, threads, x, y, desc.diff_weights_desc(), plain,
                            d.bias ? &bias : nullptr);
  } catch (const dnnl::error& error) {
    fail(ErrorKind::device, "cpu: oneDNN cannot create a linear layer {} -> {} (batch {}): {}",
         d.in, d.out, d.batch, error.what());
  }
}

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

std::string instruction_set() {
  struct Name {
    int value;
    const char* text;
  };
  // The constants differ between 2.x and 3.x.
#if DNNL_VERSION_MAJOR >= 3
  constexpr Name kNames[] = {{0x1, "sse41"},
                             {0x3, "avx"},
                             {0x7, "avx2"},
                             {0xf, "avx2_vnni"},
                             {0x1f, "avx2_vnni_2"},
                             {0x27, "avx512_core"},
                             {0x67, "avx512_core_vnni"},
                             {0xe7, "avx512_core_bf16"},
                             {0x1ef, "avx512_core_fp16"},
                             {0xfef, "avx512_core_amx"},
                             {0x1fef, "avx512_core_amx_fp16"}};
#else
  constexpr Name kNames[] = {{0x1, "sse41"},
                             {0x3, "avx"},
                             {0x7, "avx2"},
                             {0x407, "avx2_vnni"},
                             {0xf, "avx512_mic"},
                             {0x1f, "avx512_mic_4ops"},
                             {0x27, "avx512_core"},
                             {0x67, "avx512_core_vnni"},
                             {0xe7, "avx512_core_bf16"},
                             {0x3e7, "avx512_core_amx"}};
#endif
  const int value = static_cast<int>(dnnl_get_effective_cpu_isa());
  const auto found = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& name) { return name.value == value; });
  return found != std::end(kNames) ? found->text : fmt::format("isa_{:#x}", value);
}

bool has_bf16() {
  // The constants are bit sets: a wider instruction set includes the bits of narrower ones.
  constexpr int kBf16 = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<int>(dnnl_get_effective_cpu_isa()) & kBf16) == kBf16;
}

}  // namespace dpt::onednn
