#include "engine/run/run_saver.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "engine/job/best.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"
#include "kernels/base/start_thread.h"

namespace dpt {

RunSaver::RunSaver(RunFolder& folder, const Plan& plan, std::int64_t keep_last, std::int64_t pinned,
                   bool keeps_rollback_step)
    : folder_(folder),
      plan_(plan),
      retention_(folder.at("checkpoints"), keep_last),
      keeps_rollback_step_(keeps_rollback_step) {
  if (pinned >= 0) retention_.pin(pinned);
}

RunSaver::~RunSaver() {
  if (thread_.joinable()) thread_.join();
}

void RunSaver::start(SaveRequest request) {
  assert(!thread_.joinable() && !result_);
  done_ = false;
  const auto shared = std::make_shared<const SaveRequest>(std::move(request));
  const auto work = [this, shared] {
    result_ = save(*shared);
    done_.store(true, std::memory_order_release);
  };
  try {
    thread_ = start_thread("the checkpoint writer", work);
  } catch (const Error&) {
    work();  // No thread could be started: the steps wait instead.
  }
}

std::optional<SaveResult> RunSaver::poll() {
  if (!done_.load(std::memory_order_acquire)) return std::nullopt;
  return wait();
}

std::optional<SaveResult> RunSaver::wait() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(result_, std::nullopt);
}

SaveResult RunSaver::save(const SaveRequest& request) {
  const RunState& state = request.checkpoint.state;
  const std::string name =
      request.keep ? "checkpoints/" + checkpoint_name(state.step) : "best.safetensors";
  SaveResult result;
  result.step = state.step;
  result.epoch = state.epoch;
  result.path = name;
  result.keep = request.keep;
  result.is_best = request.is_best;
  try {
    check_folder(result);
    if (request.is_best) keep_former_best(request, result);
    result.checksum = save_checkpoint(folder_.at(name), plan_, request.checkpoint);
    if (request.keep && request.is_best) copy_durably(folder_.at(name), folder_.best_place());
    result.best_moved = request.is_best;
  } catch (...) {
    result.error = std::current_exception();
    if (request.is_best) {
      RunState saved = state;
      saved.best_checksum = result.checksum;
      result.best_moved = why_not_best(folder_.best_place(), saved).empty();
    }
    try {
      check_folder(result);  // The removal of the folder may have caused the failure.
    } catch (const Error&) {
      result.error = std::current_exception();
    }
    return result;
  }
  clean_up(request, result);
  return result;
}

void RunSaver::check_folder(SaveResult& result) {
  try {
    const std::string moved = folder_.check_held();
    if (!moved.empty()) result.warnings.push_back(moved);
  } catch (const Error&) {
    result.lost_folder = true;
    throw;
  }
}

void RunSaver::keep_former_best(const SaveRequest& request, SaveResult& result) {
  try {
    for (const std::int64_t step : request.needed) {
      const HeldPath place = folder_.checkpoint_place(step), best = folder_.best_place();
      if (step == request.checkpoint.state.step || entry_type(place) != EntryType::none ||
          entry_type(best) == EntryType::none) {
        continue;
      }
      // If checkpoint.every is 0, a best is saved as best.safetensors only.
      if (read_checkpoint_header(best).state.step == step) copy_durably(best, place);
    }
  } catch (const std::exception& error) {
    result.warnings.push_back(error.what());
  }
}

void RunSaver::clean_up(const SaveRequest& request, SaveResult& result) {
  const RunState& state = request.checkpoint.state;
  const auto warn = [&](const std::string& text) { result.warnings.push_back(text); };
  try {
    // best.safetensors alone is not a checkpoint to resume from: remove nothing.
    if (!result.keep) return;
    for (const auto& [step, file] : carried_) {
      const HeldPath place = folder_.checkpoint_place(step);
      if (entry_type(place) == EntryType::none && entry_type(file) != EntryType::none) {
        copy_durably(file, place);
      }
    }
    carried_.clear();
    check_folder(result);
    if (request.is_regular) folder_.give_up_replaced();
    retention_.note_good(folder_.at(result.path));
    // Remove the best checkpoint only after seeing that best.safetensors contains it.
    const auto is_needed = [&](std::int64_t step) {
      if (keeps_rollback_step_ && step == state.rollback_step) return true;
      // Keep former bests that a rollback may need: a later best has replaced them in
      // best.safetensors.
      const auto& needed = request.needed;
      if (std::find(needed.begin(), needed.end(), step) != needed.end()) return true;
      return state.best && step == state.best_step && step != state.step &&
             !why_not_best(folder_.best_place(), state).empty();
    };
    retention_.apply(state.step, is_needed, warn);
  } catch (const std::exception& error) {
    if (result.lost_folder) {
      result.error = std::current_exception();
    } else {
      warn(error.what());
    }
  }
}

}  // namespace dpt
