#include "engine/checkpoints/checkpoint_content.h"

#include <algorithm>

namespace dpt {

bool is_average(const std::string& state) {
  return state == kEma || state == kSwa;
}

const std::pair<std::string, std::vector<float>>* average_of(const Checkpoint& checkpoint) {
  const auto& states = checkpoint.optimizer;
  const auto found = std::find_if(states.begin(), states.end(),
                                  [](const auto& state) { return is_average(state.first); });
  if (found != states.end() && found->first == kSwa && checkpoint.state.averaged == 0) {
    return nullptr;
  }
  return found == states.end() ? nullptr : &*found;
}

}  // namespace dpt
