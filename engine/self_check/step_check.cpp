#include "engine/self_check/step_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "engine/self_check/operation_text.h"
#include "engine/self_check/test_values.h"
#include "kernels/base/align.h"
#include "kernels/common/bf16.h"

namespace dpt {
namespace {

/// A result of a kernel, and the allowed difference relative to its largest value.
struct KernelResult {
  std::string name;
  std::vector<float> values;
  double relative = 1e-5;
};

/// The memory of a kernel on one of the two devices that are compared.
class Side {
 public:
  explicit Side(Backend& device) : backend(device) {}

  template <class T>
  DevPtr put(const std::vector<T>& values) {
    if (values.empty()) return {};
    const std::size_t bytes = values.size() * sizeof(T);
    memory_.push_back(backend.allocate(bytes, "the self check"));
    backend.upload(memory_.back().ptr(), values.data(), bytes);
    backend.synchronize();
    return memory_.back().ptr();
  }
  template <class T>
  DevPtr put_one(const T& value) {
    return put(std::vector<T>{value});
  }
  template <class T>
  std::vector<T> get(DevPtr from, std::size_t count) {
    std::vector<T> values(count);
    backend.download(values.data(), from, count * sizeof(T));
    backend.synchronize();
    return values;
  }
  /// Adds a result.
  void add(const std::string& name, DevPtr from, std::size_t count, DType type = DType::f32) {
    KernelResult result{name, {}};
    if (type == DType::bf16) {
      for (const Bf16 each : get<Bf16>(from, count)) result.values.push_back(to_float(each));
      result.relative = 4e-3;
    } else if (type == DType::i32) {
      for (const auto each : get<std::int32_t>(from, count)) {
        result.values.push_back(static_cast<float>(each));
      }
    } else {
      result.values = get<float>(from, count);
    }
    results.push_back(std::move(result));
  }

  Backend& backend;
  std::vector<KernelResult> results;

 private:
  std::vector<DeviceMemory> memory_;
};

std::vector<float> floats(std::uint64_t seed, std::size_t count) {
  TestValues source(seed);
  std::vector<float> all(count);
  for (float& each : all) each = static_cast<float>(source.value());
  return all;
}

std::vector<float> positive(std::uint64_t seed, std::size_t count) {
  std::vector<float> all = floats(seed, count);
  for (float& each : all) each = std::abs(each);
  return all;
}

/// Number of floats of the flat buffers; not a multiple of a vector or a block.
constexpr std::size_t kFloats = 5003;
constexpr std::int64_t kSamples = 3;

template <class T>
std::vector<T> count_up(std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<T>(i);
  return all;
}

void run_input(const Job& job, Side& side) {
  InputDesc d = job.data.mixed_input();
  d.batch = kSamples;
  // In a mixed batch, each sample needs the one before it.
  const auto entries = static_cast<std::size_t>(kSamples + (d.mix ? 1 : 0));
  const std::size_t count = entries * static_cast<std::size_t>(d.raw.elements());
  InputArgs args;
  if (d.raw_type == DType::u8) {
    TestValues source(1);
    std::vector<std::uint8_t> raw(count);
    for (std::uint8_t& each : raw) each = static_cast<std::uint8_t>(source.bits());
    args.raw = side.put(raw);
  } else {
    args.raw = side.put(floats(1, count));
  }
  // The first sample's partner comes before it.
  const std::size_t first = d.mix ? 1 : 0;
  args.slots = side.put(count_up<std::int32_t>(entries)) + first * sizeof(std::int32_t);
  args.ids = side.put(count_up<std::int64_t>(entries)) + first * sizeof(std::int64_t);
  args.epoch = side.put_one(std::int64_t{1});
  const InputBox box{1, 2, static_cast<std::int32_t>(d.out.h / 2),
                     static_cast<std::int32_t>(d.out.w / 2)};
  if (d.erase) {
    args.boxes = side.put(std::vector<InputBox>(entries, box)) + first * sizeof(InputBox);
  }
  if (d.mix) args.mix = side.put_one(InputMix{0.75F, 0.25F, box});
  const auto outputs = static_cast<std::size_t>(kSamples * d.out.elements());
  args.y = side.put(std::vector<float>(outputs));
  side.backend.make_input(d)->run(args);
  side.add("samples", args.y, outputs, d.type);
}

void run_loss(const Job& job, Side& side) {
  const Loss& loss = job.model.train_loss();
  const DType type = job.model.plan.type;
  const std::int64_t classes = job.model.plan.classes;
  const auto outputs = static_cast<std::size_t>(kSamples * classes);
  LossArgs args;
  const std::vector<float> logits = floats(2, outputs);
  if (type == DType::bf16) {
    std::vector<Bf16> halves;
    for (const float each : logits) halves.push_back(to_bf16(each));
    args.logits = side.put(halves);
  } else {
    args.logits = side.put(logits);
  }
  std::vector<std::int32_t> labels = count_up<std::int32_t>(kSamples);
  for (std::int32_t& each : labels) each %= static_cast<std::int32_t>(classes);
  args.labels = side.put(labels);
  args.slots = side.put(count_up<std::int32_t>(kSamples));
  args.targets = side.put(positive(3, static_cast<std::size_t>(kSamples * loss.targets.floats())));
  args.dlogits = side.put(std::vector<float>(outputs));
  args.metrics = side.put_one(StepMetrics{});
  args.sample_loss = side.put(std::vector<float>(kSamples));
  args.prediction = side.put(std::vector<std::int32_t>(kSamples));
  args.inverse_count = side.put_one(0.25F);
  const std::unique_ptr<LossOp> op =
      loss.compile(side.backend, {kSamples, classes, type, true, loss.sums});
  op->run(args);
  side.add("gradient", args.dlogits, outputs, type);
  side.add("loss of each sample", args.sample_loss, kSamples);
  side.add("predictions", args.prediction, kSamples, DType::i32);
  const StepMetrics metrics = side.get<StepMetrics>(args.metrics, 1)[0];
  KernelResult sums{"sums",
                    {metrics.loss_sum, metrics.weight, static_cast<float>(metrics.count.value()),
                     static_cast<float>(metrics.labelled.value())}};
  for (const SplitSum& each : metrics.sums) {
    sums.values.push_back(static_cast<float>(each.value()));
  }
  side.results.push_back(std::move(sums));
}

void run_optimizer(const Job& job, Side& side) {
  const OptimizerSpec& spec = job.update.optimizer;
  constexpr std::int64_t kFirst = 4096;
  const std::unique_ptr<OptimizerOp> op = side.backend.optimizer(
      {spec.formula, {{0, kFirst, 0}, {kFirst, static_cast<std::int64_t>(kFloats) - kFirst, 1}}});
  OptimizerArgs args;
  args.params = side.put(floats(4, kFloats));
  args.grads = side.put(floats(5, kFloats));
  for (std::size_t k = 0; k < spec.states.size(); ++k) {
    args.states[k] = side.put(positive(6 + k, kFloats));
  }
  StepScalars scalars;
  scalars.step = 3;
  scalars.clip = 0.5F;
  args.scalars = side.put_one(scalars);
  args.steps = side.put(
      std::vector<UpdateStep>{spec.update_step(0.1, 0, 3), spec.update_step(0.01, 0.125, 3)});
  if (job.model.plan.type == DType::bf16) args.params16 = side.put(std::vector<Bf16>(kFloats));
  StepMetrics metrics;
  metrics.weight = 1;
  args.metrics = side.put_one(metrics);
  args.guard = side.put_one(UpdateGuard{});
  op->step(args);
  side.add("parameters", args.params, kFloats);
  for (std::size_t k = 0; k < spec.states.size(); ++k) {
    side.add("state " + spec.states[k].name, args.states[k], kFloats);
  }
  if (args.params16) side.add("parameters in bf16", args.params16, kFloats, DType::bf16);
  std::vector<float> outcomes = {side.get<StepMetrics>(args.metrics, 1)[0].outcome};
  // This update breaks a parameter.
  args.grads = side.put(std::vector<float>(kFloats, INFINITY));
  op->step(args);
  outcomes.push_back(side.get<StepMetrics>(args.metrics, 1)[0].outcome);
  side.results.push_back({"outcome", std::move(outcomes)});
}

void run_statistics(const Job&, Side& side) {
  constexpr std::int64_t kEnd = 640, kCounter = 704;
  const RunningRange ranges[] = {{0, 320, 0.1F, kCounter}, {320, kEnd, -1, kCounter}};
  std::vector<float> params = positive(9, kCounter + 64);
  params[kCounter] = UpdateCounter::bits(5);
  RunningArgs args;
  args.params = side.put(params);
  args.sums = side.put(positive(10, params.size()));
  StepMetrics metrics;
  metrics.weight = 1;
  metrics.count.add_count(16);
  args.metrics = side.put_one(metrics);
  side.backend.check_running(ranges, args);
  side.backend.update_running(ranges, {kCounter, kCounter + 64}, args);
  side.add("statistics", args.params, kEnd);
  params[100] = INFINITY;
  args.sums = side.put(params);
  side.backend.check_running(ranges, args);
  const std::uint32_t bad = side.get<StepMetrics>(args.metrics, 1)[0].bad_statistic;
  side.results.push_back(
      {"bad statistic", {static_cast<float>(StepMetrics::kFirstStatistic - bad)}});
  const float bits = side.get<float>(args.params + kCounter * sizeof(float), 1)[0];
  side.results.push_back({"counter", {static_cast<float>(UpdateCounter::count(bits))}});
}

void run_sums(const Job&, Side& side) {
  constexpr auto kCount = static_cast<std::int64_t>(kFloats);
  Backend& backend = side.backend;
  const DevPtr a = side.put(floats(11, kFloats)), b = side.put(floats(12, kFloats)),
               c = side.put(floats(13, kFloats)), d = side.put(floats(14, kFloats)),
               to = side.put(std::vector<float>(kFloats));
  const DevPtr parts[] = {a, b, c, d}, outs[] = {to};
  const TreeAdd additions[] = {{0, 1}, {2, 3}, {0, 2}};
  backend.tree_sum(parts, additions, outs, kCount);
  side.add("tree sum", to, kFloats);
  backend.add(to, to, b, kCount);
  side.add("sum", to, kFloats);
  StepScalars scalars;
  scalars.max_norm = 1;
  const DevPtr norms = side.put_one(scalars);
  backend.grad_norm(to, kCount, norms);
  const StepScalars norm = side.get<StepScalars>(norms, 1)[0];
  side.results.push_back({"norm of the gradient", {norm.grad_norm, norm.clip, norm.finite}});
  StepMetrics metrics;
  metrics.weight = 8;
  backend.divide_by_weight(to, kCount, side.put_one(metrics));
  side.add("gradient divided by the weight", to, kFloats);
  backend.clip_values(to, 0.03125F, kCount);
  side.add("clipped gradient", to, kFloats);
  const DevPtr halves = side.put(std::vector<Bf16>(kFloats));
  backend.to_bf16(halves, b, kCount);
  side.add("bf16 copy", halves, kFloats, DType::bf16);
  const Range ranges[] = {{0, 17}, {17, 2000}, {2048, kCount}};
  const DevPtr of_ranges = side.put(std::vector<float>(3));
  backend.range_norms(ranges)->run(b, of_ranges);
  side.add("norms of ranges", of_ranges, 3);
  constexpr std::int64_t kChannels = 70;
  const DevPtr left = side.put(positive(15, 2 * kChannels)),
               right = side.put(positive(16, 2 * kChannels));
  const DevPtr moments[] = {left, right}, merged[] = {left};
  const MomentMerge merges[] = {{0, 1, 0.25F, 12}};
  backend.merge_moments(moments, merges, merged, kChannels);
  side.add("merged moments", left, 2 * kChannels);
}

/// Returns the first difference between two results, or an empty string.
std::string disagreement(const KernelResult& got, const KernelResult& want) {
  double largest = 0;
  for (const float each : want.values) largest = std::max(largest, std::abs(double{each}));
  const double bound = got.relative * largest;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const double a = double{got.values[i]}, b = double{want.values[i]};
    const bool both_nan = std::isnan(a) && std::isnan(b);
    if (a == b || both_nan || std::abs(a - b) <= bound) continue;
    return wrong_value_text(got.name, i, want.values.size(), a, b, bound);
  }
  return {};
}

}  // namespace

std::vector<OperationCheck> check_step_kernels(const Job& job, Backend& gpu) {
  struct Kernel {
    const char* name;
    void (*run)(const Job&, Side&);
  };
  constexpr Kernel kKernels[] = {{"input", run_input},
                                 {"loss", run_loss},
                                 {"optimizer", run_optimizer},
                                 {"running statistics", run_statistics},
                                 {"sums and norms", run_sums}};
  const std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  std::vector<OperationCheck> wrong;
  for (const Kernel& kernel : kKernels) {
    Side got(gpu), want(*cpu);
    kernel.run(job, got);
    kernel.run(job, want);
    std::string problem;
    for (std::size_t k = 0; k < want.results.size() && problem.empty(); ++k) {
      problem = disagreement(got.results[k], want.results[k]);
    }
    if (!problem.empty()) wrong.push_back({kernel.name, "own", std::move(problem), {}, 0});
  }
  return wrong;
}

}  // namespace dpt
