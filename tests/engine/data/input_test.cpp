// The input kernel against a plain double-precision reference, with the same bits on every backend.
#include <omp.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <thread>

#include "kernels/common/augment.h"
#include "kernels/cpu/ops.h"
#include "kernels/devices.h"
#include "tests/engine/data/support.h"
#include "tests/support/backends.h"
#include "tests/support/op_runner.h"

namespace dpt {
namespace {

using namespace data_test;

int threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

struct Batch {
  std::vector<std::int32_t> slots;
  std::vector<std::int64_t> ids;
  std::vector<InputBox> boxes = {};  ///< the erased boxes
  InputMix mix = {};

  /// Returns a batch of sample k only, preceded by its partner if samples are mixed.
  Batch alone(std::size_t k, bool mixed) const {
    const std::size_t first = k - (mixed ? 1 : 0), count = mixed ? 2 : 1;
    const auto cut = [&](const auto& all) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(all.empty() ? 0 : first);
      return std::vector(from, from + static_cast<std::ptrdiff_t>(all.empty() ? 0 : count));
    };
    return {cut(slots), cut(ids), cut(boxes), mix};
  }
};

std::vector<float> run_on(Backend& backend, InputDesc desc, const Bytes& raw, const Batch& batch,
                          std::int64_t epoch) {
  using testing::OnDevice;
  // In a mixed batch, the first sample is only the partner of the second.
  const std::size_t lead = desc.mix ? 1 : 0;
  desc.batch = static_cast<std::int64_t>(batch.slots.size() - lead);
  const OnDevice<std::uint8_t> samples(backend, raw);
  const OnDevice<std::int32_t> slots(backend, batch.slots);
  const OnDevice<std::int64_t> ids(backend, batch.ids), epochs(backend, {epoch});
  const OnDevice<InputBox> boxes(backend, batch.boxes);
  const OnDevice<InputMix> mix(backend, {batch.mix});
  const OnDevice<float> y(
      backend, std::vector<float>(static_cast<std::size_t>(desc.batch * desc.out.elements()), NAN));
  backend.make_input(desc)->run({samples.ptr(), slots.ptr() + lead * sizeof(std::int32_t),
                                 ids.ptr() + lead * sizeof(std::int64_t), epochs.ptr(), y.ptr(),
                                 desc.erase ? boxes.ptr() + lead * sizeof(InputBox) : DevPtr{},
                                 desc.mix ? mix.ptr() : DevPtr{}});
  return y.get();
}

/// Returns the result of the first backend, after checking that all others have the same bits.
std::vector<float> run(const InputDesc& desc, const Bytes& raw, const Batch& batch,
                       std::int64_t epoch) {
  // Created once, because creating a GPU backend is slow.
  static const auto backends = [] {
    std::vector<std::unique_ptr<Backend>> all;
    for (const std::string& name : testing::backend_names()) {
      all.push_back(make_backend(parse_device(name)));
    }
    return all;
  }();
  const std::vector<float> first = run_on(*backends[0], desc, raw, batch, epoch);
  for (const auto& backend : backends) {
    INFO(backend->info().name);
    const std::vector<float> y = run_on(*backend, desc, raw, batch, epoch);
    CHECK(std::memcmp(y.data(), first.data(), first.size() * sizeof(float)) == 0);
  }
  return first;
}

bool inside(const InputBox& box, std::int64_t y, std::int64_t x) {
  return y >= box.top && y < box.top + box.height && x >= box.left && x < box.left + box.width;
}

/// Computes the definition pixel by pixel.
std::vector<double> reference(const InputDesc& desc, const Bytes& raw, const Batch& batch,
                              std::int64_t epoch) {
  const SampleShape &in = desc.raw, &out = desc.out;
  const auto pixel = [&](std::int64_t slot, std::int64_t y, std::int64_t x,
                         std::int64_t c) -> double {
    if (y < 0 || y >= in.h || x < 0 || x >= in.w) return 0;
    const auto at = static_cast<std::size_t>(slot * in.elements() + (y * in.w + x) * in.c + c);
    if (desc.raw_type == DType::u8) return raw[at] / 255.0;
    float value;
    std::memcpy(&value, raw.data() + 4 * at, 4);
    return static_cast<double>(value);
  };
  std::vector<double> result;
  for (std::size_t k = 0; k < batch.slots.size(); ++k) {
    const std::int64_t pad = desc.crop ? desc.crop_padding : 0;
    const augment::Draw draw =
        augment::draw(desc.seed, epoch, batch.ids[k],
                      static_cast<std::uint32_t>(desc.crop ? in.h + 2 * pad - out.h + 1 : 1),
                      static_cast<std::uint32_t>(desc.crop ? in.w + 2 * pad - out.w + 1 : 1),
                      desc.flip_probability);
    for (std::int64_t y = 0; y < out.h; ++y) {
      for (std::int64_t x = 0; x < out.w; ++x) {
        for (std::int64_t c = 0; c < out.c; ++c) {
          const std::int64_t column = desc.flip && draw.flip ? out.w - 1 - x : x;
          double value = pixel(batch.slots[k], y + draw.top - pad, column + draw.left - pad, c);
          const auto channel = static_cast<std::size_t>(c);
          if (!desc.mean.empty()) value -= static_cast<double>(desc.mean[channel]);
          if (!desc.stddev.empty()) value /= static_cast<double>(desc.stddev[channel]);
          if (desc.erase && inside(batch.boxes[k], y, x)) {
            value = static_cast<double>(desc.erase_value[channel]);
          }
          result.push_back(value);
        }
      }
    }
  }
  if (!desc.mix) return result;
  const auto size = static_cast<std::size_t>(out.elements());
  std::vector<double> mixed(result.begin() + static_cast<std::ptrdiff_t>(size), result.end());
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    const auto pixel_at = static_cast<std::int64_t>(i % size) / out.c;
    if (!inside(batch.mix.box, pixel_at / out.w, pixel_at % out.w)) continue;
    mixed[i] = static_cast<double>(batch.mix.own) * mixed[i] +
               static_cast<double>(batch.mix.partner) * result[i];
  }
  return mixed;
}

void check(const InputDesc& desc, const InputMix& mix = {}, std::int64_t epoch = 2) {
  const std::size_t samples = 9;
  Bytes raw =
      noise(samples * static_cast<std::size_t>(desc.raw.elements()) * size_of(desc.raw_type));
  if (desc.raw_type == DType::f32) {
    for (std::size_t at = 0; at + 4 <= raw.size(); at += 4) {
      const float value = static_cast<float>(raw[at]) / 100.0F - 1.0F;
      std::memcpy(raw.data() + at, &value, 4);
    }
  }
  Batch batch;
  for (std::int64_t k = 0; k < 30; ++k) {
    batch.slots.push_back(static_cast<std::int32_t>((k * 5 + 2) % 9));
    batch.ids.push_back(1000 + k * 7);
    const auto h = static_cast<std::int32_t>(k % desc.out.h);
    const auto w = static_cast<std::int32_t>(k % desc.out.w);
    if (!desc.erase) continue;
    const auto bottom = static_cast<std::int32_t>(desc.out.h) - h;
    batch.boxes.push_back({bottom / 2, (static_cast<std::int32_t>(desc.out.w) - w) / 2, h, w});
  }
  batch.mix = mix;
  const std::vector<float> got = run(desc, raw, batch, epoch);
  const std::vector<double> want = reference(desc, raw, batch, epoch);
  REQUIRE(got.size() == want.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double tolerance = 3e-7 * (std::abs(want[i]) + 1);
    if (!(std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance)) ++wrong;
  }
  CHECK(wrong == 0);
  // The bits are the same for any partition and order of the batch.
  const std::size_t lead = desc.mix ? 1 : 0;
  const std::size_t step = desc.erase || desc.mix ? 7 : 1;
  for (std::size_t k = batch.slots.size(); k-- > lead;) {
    if ((k - lead) % step != 0) continue;
    const std::vector<float> alone = run(desc, raw, batch.alone(k, desc.mix), epoch);
    CHECK(std::memcmp(alone.data(), got.data() + (k - lead) * alone.size(), alone.size() * 4) == 0);
  }
}

InputDesc desc_of(SampleShape raw, SampleShape out, DType type = DType::u8) {
  InputDesc desc;
  desc.raw_type = type;
  desc.raw = raw;
  desc.out = out;
  desc.seed = 5;
  return desc;
}

TEST_CASE("input kernel: every combination against the reference") {
  for (const DType type : {DType::u8, DType::f32}) {
    for (const std::int64_t c : {1, 2, 3}) {
      for (const bool flip : {false, true}) {
        for (const int crop : {0, 1, 2, 3, 4}) {
          CAPTURE(name_of(type));
          CAPTURE(c);
          CAPTURE(flip);
          CAPTURE(crop);
          InputDesc desc = desc_of({6, 5, c}, {6, 5, c}, type);
          desc.flip = flip;
          desc.crop = crop > 0;
          if (crop == 1) desc.crop_padding = 2;
          if (crop == 2) desc.out = {3, 4, c};
          if (crop == 3) {  // More padding than image: some crops contain only padding.
            desc.out = {2, 3, c};
            desc.crop_padding = 5;
          }
          if (crop == 4) {  // The crop is larger than the image.
            desc.out = {8, 9, c};
            desc.crop_padding = 2;
          }
          if (c != 2) {
            desc.mean = {0.25F, 0.5F, 0.75F};
            desc.stddev = {0.5F, 0.3F, 2.0F};
            desc.mean.resize(static_cast<std::size_t>(c));
            desc.stddev.resize(static_cast<std::size_t>(c));
          }
          check(desc);
          desc.erase = true;
          desc.erase_value = {0.125F, -3.0F, 7.5F};
          desc.erase_value.resize(static_cast<std::size_t>(c));
          check(desc);
          if (c == 1 || crop == 2 || crop == 3) continue;
          const auto h = static_cast<std::int32_t>(desc.out.h);
          const auto w = static_cast<std::int32_t>(desc.out.w);
          for (const bool erase : {false, true}) {
            desc.erase = erase;
            desc.mix = true;
            check(desc, {0.3F, 0.7F, {0, 0, h, w}});
            check(desc, {0.0F, 1.0F, {1, 2, h - 2, 1}});
          }
        }
      }
    }
  }
}

TEST_CASE("input kernel: non-finite values stay out of a sample that takes all of its partner") {
  InputDesc desc = desc_of({1, 2, 1}, {1, 2, 1}, DType::f32);
  desc.mix = true;
  const float values[] = {1, 2, INFINITY, NAN};
  Bytes raw(sizeof(values));
  std::memcpy(raw.data(), values, sizeof(values));
  const Batch batch{{0, 1}, {0, 1}, {}, {0.0F, 1.0F, {0, 0, 1, 2}}};
  CHECK(run(desc, raw, batch, 0) == std::vector<float>{1, 2});
  // Pixels outside the box are not mixed.
  const Batch other{{1, 0}, {0, 1}, {}, {0.5F, 0.5F, {0, 0, 0, 0}}};
  CHECK(run(desc, raw, other, 0) == std::vector<float>{1, 2});
}

TEST_CASE("input kernel: threads change nothing") {
  InputDesc desc = desc_of({28, 28, 1}, {28, 28, 1});
  desc.crop = desc.flip = true;
  desc.crop_padding = 2;
  const Bytes raw = noise(300 * 784);
  Batch batch;
  for (std::int32_t k = 0; k < 256; ++k) {
    batch.slots.push_back(k);
    batch.ids.push_back(k);
  }
  const std::vector<float> one = run(desc, raw, batch, 0);
  if (omp_get_thread_limit() >= 3) {  // not under ThreadSanitizer
    const auto team = make_backend(parse_device("cpu:3"));
    CHECK(run_on(*team, desc, raw, batch, 0) == one);
  }
  CHECK(run(desc, raw, batch, 1) != one);
}

TEST_CASE("input kernel: a replica computes on the threads of its device and no more") {
  // OpenMP's default team has a thread for each core; N replicas would then start N x N threads.
  const InputDesc desc = desc_of({28, 28, 1}, {28, 28, 1});
  const Bytes raw = noise(300 * 784);
  Batch batch;
  for (std::int32_t k = 0; k < 256; ++k) {
    batch.slots.push_back(k);
    batch.ids.push_back(k);
  }
  for (const auto& [device, more] : {std::pair("cpu", 0), std::pair("cpu:3", 2)}) {
    CAPTURE(device);
    if (more >= omp_get_thread_limit()) continue;  // as under ThreadSanitizer
    std::thread([&, device = device, more = more] {
      omp_set_num_threads(7);
      const int before = threads_of_this_process();
      const auto backend = make_backend(parse_device(device));
      run_on(*backend, desc, raw, batch, 0);
      CHECK(threads_of_this_process() - before == more);
    }).join();
  }
}

TEST_CASE("input kernel: bytes become what torchvision makes of them") {
  InputDesc desc = desc_of({1, 4, 1}, {1, 4, 1});
  CHECK(run(desc, {0, 51, 128, 255}, {{0}, {0}}, 0) ==
        std::vector<float>{0.0F, 0.2F, 128.0F / 255.0F, 1.0F});
  desc.mean = {0.5F};
  desc.stddev = {0.25F};
  CHECK(run(desc, {0, 51, 128, 255}, {{0}, {0}}, 0) ==
        std::vector<float>{-2.0F, (0.2F - 0.5F) / 0.25F, (128.0F / 255.0F - 0.5F) / 0.25F, 2.0F});
}

TEST_CASE("augmentation: draws are spread evenly and never change between versions") {
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> corners;
  int flips = 0;
  for (std::int64_t id = 0; id < 25000; ++id) {
    const augment::Draw draw = augment::draw(1, 0, id, 5, 5, 0.25F);
    ++corners[{draw.top, draw.left}];
    flips += draw.flip;
  }
  CHECK(corners.size() == 25);
  for (const auto& [corner, count] : corners) CHECK(std::abs(count - 1000) < 155);
  CHECK(std::abs(flips - 6250) < 343);
  for (std::int64_t id = 0; id < 100; ++id) {
    CHECK(augment::draw(1, 0, id, 1, 1, 1.0F).flip);
    CHECK(!augment::draw(1, 0, id, 1, 1, 0.0F).flip);
  }
  const augment::Draw draw = augment::draw(1, 2, 3, 1000, 1000, 0.5F);
  CHECK(draw.top == 350);
  CHECK(draw.left == 209);
  CHECK(!draw.flip);
}

TEST_CASE("input kernel: an invalid description is refused when the kernel is made") {
  const auto error = [](const InputDesc& desc) {
    return error_of([&] { make_cpu_input(desc, 1); }, ErrorKind::device);
  };
  InputDesc desc = desc_of({4, 4, 1}, {4, 4, 1});
  desc.type = DType::i32;
  CHECK(error(desc) ==
        "input kernel (cpu): activations of type i32 are not supported, use fp32 or bf16");
  desc = desc_of({4, 4, 1}, {4, 4, 1}, DType::i32);
  CHECK(error(desc) == "input kernel (cpu): raw samples are u8 or fp32, not i32");
  desc = desc_of({4, 4, 3}, {4, 4, 3});
  desc.erase = true;
  desc.erase_value = {0};
  CHECK(error(desc) ==
        "input kernel (cpu): expected one fill value of RandomErasing for each of 3 channels, "
        "found 1");
  CHECK(error(desc_of({4, 5, 1}, {4, 4, 1})) ==
        "input kernel (cpu): cannot produce 4x4x1 (height, width, channels) from 4x5x1 (crop: no, "
        "padding: 0, batch: 0)");
  desc = desc_of({4, 4, 1}, {7, 4, 1});
  desc.crop = true;
  desc.crop_padding = 1;
  CHECK(error(desc) ==
        "input kernel (cpu): cannot produce 7x4x1 (height, width, channels) from 4x4x1 (crop: yes, "
        "padding: 1, batch: 0)");
  desc = desc_of({4, 4, 1}, {4, 7, 1});
  desc.crop = true;
  desc.crop_padding = 1;
  CHECK(error(desc).starts_with("input kernel (cpu): cannot produce 4x7x1"));
  desc.crop_padding = -1;
  desc.out = {2, 2, 1};
  CHECK(error(desc).starts_with("input kernel (cpu): cannot produce 2x2x1"));
  CHECK(
      error(desc_of({4, 4, 1}, {4, 5, 1})).starts_with("input kernel (cpu): cannot produce 4x5x1"));
  CHECK(
      error(desc_of({4, 4, 1}, {4, 4, 2})).starts_with("input kernel (cpu): cannot produce 4x4x2"));
  CHECK(
      error(desc_of({0, 4, 1}, {0, 4, 1})).starts_with("input kernel (cpu): cannot produce 0x4x1"));
  desc = desc_of({4, 4, 1}, {4, 4, 1});
  desc.batch = -1;
  CHECK(error(desc).ends_with("batch: -1)"));
  desc = desc_of({4, 4, 3}, {4, 4, 3});
  desc.stddev = {0.5F, 1.0F};
  CHECK(error(desc) ==
        "input kernel (cpu): expected one mean and one standard deviation for each of 3 channels, "
        "found 0 and 2");
  desc = desc_of({4, 4, 3}, {4, 4, 3});
  desc.mean = {0.5F};
  CHECK(error(desc) ==
        "input kernel (cpu): expected one mean and one standard deviation for each of 3 channels, "
        "found 1 and 0");
}

}  // namespace
}  // namespace dpt
