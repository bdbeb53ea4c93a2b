// Builds a config with a schedule, and compares its rates with PyTorch's.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedules/schedule.h"
#include "tests/engine/optimizers/support.h"

namespace dpt {

using OptionValues = std::initializer_list<std::pair<const char*, PlainValue>>;

inline TrainSpec scheduled(const std::string& type, std::int64_t epochs, OptionValues values = {}) {
  TrainSpec spec;
  spec.train.epochs = epochs;
  spec.lr_schedule = make_variant(schedule_kinds().table(), type, values);
  REQUIRE(check_of(spec.lr_schedule) == "");
  return spec;
}

/// Returns the rates of the first `count` updates.
inline std::vector<double> rates_of(const LrSchedule& schedule, std::size_t count) {
  std::vector<double> all;
  for (std::size_t step = 0; step < count; ++step) {
    all.push_back(schedule(static_cast<std::int64_t>(step)));
  }
  return all;
}

/// Compares the rates. PyTorch computes most schedules as a product over the steps so far, so the
/// last bits differ.
inline void check_rates(const LrSchedule& schedule, std::span<const double> torch) {
  const std::vector<double> ours = rates_of(schedule, torch.size());
  for (std::size_t i = 0; i < torch.size(); ++i) {
    CAPTURE(i);
    CHECK(ours[i] == doctest::Approx(torch[i]).epsilon(1e-14));
  }
}

/// Compares a schedule that steps once per epoch: PyTorch has one rate per epoch, which must be
/// constant within the epoch.
inline void check_epochs(const LrSchedule& schedule, std::int64_t steps_per_epoch,
                         std::span<const double> torch) {
  for (std::size_t epoch = 0; epoch < torch.size(); ++epoch) {
    const std::int64_t first = static_cast<std::int64_t>(epoch) * steps_per_epoch;
    CAPTURE(epoch);
    CHECK(schedule(first) == doctest::Approx(torch[epoch]).epsilon(1e-14));
    CHECK(schedule(first + steps_per_epoch - 1) == schedule(first));
  }
}

/// Returns the message with which a schedule is refused; empty if it is accepted.
inline std::string refusal(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch) {
  try {
    make_lr_schedule(spec, base_lr, steps_per_epoch);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return {};
}

}  // namespace dpt
