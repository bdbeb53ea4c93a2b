#include "engine/replica/sample_evaluation.h"

#include <algorithm>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/base/heartbeat.h"

namespace dpt {

void SampleEvaluation::fold(const PassParams& params) {
  const EvaluationPlan& evaluation = job_.model.evaluation;
  if (evaluation.folds.empty()) return;
  const auto floats = static_cast<std::size_t>(evaluation.folded_floats);
  memory_.grow(folded_, floats * sizeof(float), "folded batch norms");
  backend_.fold_norms(evaluation.folds, params.fp32, folded_.ptr());
  if (evaluation.plan.type != DType::bf16) return;
  memory_.grow(folded16_, floats * size_of(DType::bf16), "folded batch norms");
  backend_.to_bf16(folded16_.ptr(), folded_.ptr(), evaluation.folded_floats);
}

SampleEvaluation::OwnPart SampleEvaluation::run_own(const PassParams& params,
                                                    const DataSource& source,
                                                    const std::vector<Range>& micro_batches,
                                                    Loader& loader, const StopQuestion& wants_stop,
                                                    const EvaluationProgress& progress) {
  const auto most = static_cast<std::size_t>(job_.eval_batch());
  memory_.grow(loss_, most * sizeof(float), "evaluation results");
  memory_.grow(prediction_, most * sizeof(std::int32_t), "evaluation results");
  const std::size_t sum_count = job_.model.metrics.sums.size();
  memory_.grow(sums_, most * sum_count * sizeof(float), "evaluation results");
  memory_.grow(metrics_, sizeof(StepMetrics), "evaluation results");
  const std::size_t width = outputs_read(), kept = outputs_of_sample();
  if (width > 0) memory_.grow(outputs_, most * width * sizeof(float), "evaluation results");
  std::vector<float> loss(most), sums(most * sum_count), outputs(most * width);
  std::vector<std::int32_t> prediction(most);
  OwnPart own;
  own.replayed = !micro_batches.empty();
  loader.start(0, micro_batches);
  for (const Range& range : micro_batches) {
    beat("evaluating");
    if (wants_stop && wants_stop()) {
      own.leaves = true;
      break;
    }
    const HostBatch batch = loader.next();
    const StagedBatch staged = staging_.stage(0, StepScalars{}, StepMetrics{}, batch, source);
    Executor& pass = passes_.executor(range.size(), false);
    const RepeatedCalls::Key key{RepeatedCalls::Part::evaluation,
                                 range.size(),
                                 staged.batch.raw.address,
                                 false,
                                 false,
                                 false};
    const bool whole = repeated_.run(key, memory_.moves() + staging_.moves(), [&] {
      pass.evaluate({params.fp32, params.bf16, DevPtr{}, passes_.arena(0), passes_.kept(0),
                     folded_.ptr(), folded16_.ptr()},
                    staged.batch,
                    {loss_.ptr(), prediction_.ptr(), metrics_.ptr(), sums_.ptr(), outputs_.ptr()});
    });
    own.replayed = own.replayed && whole;
    staging_.release(staged);
    const auto samples = static_cast<std::size_t>(range.size());
    backend_.download(loss.data(), loss_.ptr(), samples * sizeof(float));
    backend_.download(prediction.data(), prediction_.ptr(), samples * sizeof(std::int32_t));
    backend_.download(sums.data(), sums_.ptr(), samples * sum_count * sizeof(float));
    if (width > 0) {
      backend_.download(outputs.data(), outputs_.ptr(), samples * width * sizeof(float));
    }
    backend_.synchronize();
    own.outputs.insert(own.outputs.end(), outputs.begin(),
                       outputs.begin() + static_cast<std::ptrdiff_t>(samples * kept));
    own.sums.insert(own.sums.end(), sums.begin(),
                    sums.begin() + static_cast<std::ptrdiff_t>(samples * sum_count));
    for (std::size_t k = 0; k < samples; ++k) {
      const float confidence =
          width > 0 ? outputs[k * width + static_cast<std::size_t>(prediction[k])] : 0.0F;
      own.samples.push_back({loss[k], prediction[k], batch.labels[batch.slots[k]], confidence});
    }
    if (progress) progress(static_cast<std::int64_t>(own.samples.size()));
  }
  return own;
}

std::size_t SampleEvaluation::outputs_of_sample() const {
  return job_.model.gathers_outputs() ? static_cast<std::size_t>(job_.model.plan.classes) : 0;
}

std::size_t SampleEvaluation::outputs_read() const {
  return job_.model.gathers_outputs() || job_.model.keeps_confidence
             ? static_cast<std::size_t>(job_.model.plan.classes)
             : 0;
}

std::vector<float> SampleEvaluation::gather(std::vector<float> own, std::size_t of_rank) {
  own.resize(of_rank);
  std::vector<float> all(of_rank * static_cast<std::size_t>(communicator_.size()));
  communicator_.all_gather(std::as_bytes(std::span<const float>(own)),
                           std::as_writable_bytes(std::span<float>(all)));
  return all;
}

bool SampleEvaluation::any_rank_leaves(bool leaves) {
  const std::uint8_t mine = leaves ? 1 : 0;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(communicator_.size()));
  communicator_.all_gather(std::as_bytes(std::span<const std::uint8_t>(&mine, 1)),
                           std::as_writable_bytes(std::span<std::uint8_t>(all)));
  return std::find(all.begin(), all.end(), 1) != all.end();
}

void SampleEvaluation::mark_left_out(const LeftOutSamples& left_out,
                                     std::span<const std::int64_t> indices,
                                     const std::vector<Range>& micro_batches,
                                     std::vector<SampleResult>& samples) {
  if (micro_batches.empty()) return;
  // The rank's micro-batches are adjacent, so their samples are one range of positions.
  const auto first = static_cast<std::size_t>(micro_batches.front().begin);
  for (std::size_t k = 0; k < samples.size(); ++k) {
    if (left_out.contains(indices[first + k])) samples[k].label = kLeftOut;
  }
}

SampleResults SampleEvaluation::run(const PassParams& params, const DataSource& source,
                                    std::span<const std::int64_t> indices, Loader& loader,
                                    const LeftOutSamples* left_out, const StopQuestion& wants_stop,
                                    const EvaluationProgress& progress) {
  const auto n = static_cast<std::int64_t>(indices.size());
  const std::int64_t eval_batch = job_.eval_batch();
  // The rule for micro-batches does not depend on ranks, so a sample's result does not depend on
  // the number of devices.
  const std::int64_t micro_batches = ceil_div(n, eval_batch);
  const int ranks = communicator_.size();
  const std::vector<Range> parts = proportional_parts(micro_batches, job_.placement.device_weights);
  const Range mine = parts[communicator_.rank()];
  std::vector<Range> ranges;
  for (std::int64_t i = mine.begin; i < mine.end; ++i) {
    ranges.push_back(even_part(n, micro_batches, i));
  }

  fold(params);
  EvaluationProgress own_progress;
  if (progress && communicator_.rank() == job_.placement.first_rank() && !ranges.empty()) {
    const std::int64_t own_samples = ranges.back().end - ranges.front().begin;
    own_progress = [&progress, n, own_samples](std::int64_t done) {
      progress(done == own_samples ? n : n * done / own_samples);
    };
  }
  OwnPart own = run_own(params, source, ranges, loader, wants_stop, own_progress);
  if (left_out) mark_left_out(*left_out, indices, ranges, own.samples);
  // Ranks notice a request at different micro-batches, and some may not notice it.
  if (wants_stop && any_rank_leaves(own.leaves)) {
    SampleResults none;
    none.interrupted = true;
    return none;
  }
  // Every rank sends a block of the size that the rank with the most samples needs.
  std::int64_t block = 0;
  for (const Range& part : parts) block = std::max(block, part.size() * eval_batch);
  own.samples.resize(static_cast<std::size_t>(block));
  std::vector<SampleResult> all(static_cast<std::size_t>(block * ranks));
  communicator_.all_gather(std::as_bytes(std::span<const SampleResult>(own.samples)),
                           std::as_writable_bytes(std::span<SampleResult>(all)));

  const std::size_t sum_count = job_.model.metrics.sums.size();
  const std::size_t width = outputs_of_sample();
  const std::vector<float> all_sums = gather(std::move(own.sums), own.samples.size() * sum_count);
  std::vector<float> all_outputs;
  if (width > 0) all_outputs = gather(std::move(own.outputs), own.samples.size() * width);

  SampleResults results;
  results.replayed = own.replayed;
  results.loss.reserve(static_cast<std::size_t>(n));
  results.prediction.reserve(static_cast<std::size_t>(n));
  for (int rank = 0; rank < ranks; ++rank) {
    const Range theirs = parts[rank];
    if (theirs.size() == 0) continue;
    const std::int64_t count = even_part(n, micro_batches, theirs.end - 1).end -
                               even_part(n, micro_batches, theirs.begin).begin;
    for (std::int64_t k = 0; k < count; ++k) {
      const auto at = static_cast<std::size_t>(rank * block + k);
      const SampleResult& result = all[at];
      const auto sums = all_sums.begin() + static_cast<std::ptrdiff_t>(at * sum_count);
      results.sums.insert(results.sums.end(), sums, sums + static_cast<std::ptrdiff_t>(sum_count));
      const auto outputs = all_outputs.begin() + static_cast<std::ptrdiff_t>(at * width);
      results.outputs.insert(results.outputs.end(), outputs,
                             outputs + static_cast<std::ptrdiff_t>(width));
      results.loss.push_back(result.loss);
      results.prediction.push_back(result.prediction);
      results.label.push_back(result.label);
      results.left_out.push_back(result.label == kLeftOut);
      if (job_.model.keeps_confidence) results.confidence.push_back(result.confidence);
    }
  }
  return results;
}

}  // namespace dpt
