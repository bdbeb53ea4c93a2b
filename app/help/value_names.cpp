#include "app/help/value_names.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace dpt {
namespace {

// Options whose values CLI11 checks against a list (CLI::IsMember) need no line: the list serves as
// the name of the value.
constexpr ValueName kValueNames[] = {
    // Arguments.
    {"config", "CONFIG", ValueKind::config},
    {"file", "FILE", ValueKind::checkpoint},
    {"folder", "FOLDER", ValueKind::folder},
    {"inputs", "IMAGE|FOLDER|CONFIG|KEY=VALUE", ValueKind::samples},
    {"overrides", "KEY=VALUE", ValueKind::override_},
    {"runs", "RUN", ValueKind::folder},
    {"target", "RUN|CHECKPOINT", ValueKind::run},
    // Options.
    {"--allow", "KIND,...", ValueKind::list,
     "unreadable not_finite label_conflict duplicate_across_splits class_not_trained"},
    {"--baseline", "RUN|FILE", ValueKind::run},
    {"--columns", "N"},
    {"--coordinator", "HOST:PORT"},
    {"--data", "FOLDER|FILE", ValueKind::file},
    {"--device", "DEVICE", ValueKind::text, "cpu cuda:0"},
    {"--devices", "DEVICE,...", ValueKind::list, "auto cpu cuda"},
    {"--epoch", "N"},
    {"--expect-left-over", "PATTERN"},
    {"--expect-missing", "PATTERN"},
    {"--join-timeout", "TIME"},
    {"--junit", "FILE", ValueKind::file},
    {"--max-steps", "N"},
    {"--max-time", "TIME"},
    {"--mistakes", "N"},
    {"--nproc", "N"},
    {"--onnx", "FILE", ValueKind::file},
    {"--out", "FILE", ValueKind::file},
    {"--overfit", "N"},
    {"--predictions", "FILE", ValueKind::file},
    {"--prose", "FOLDER", ValueKind::folder},
    {"--rank", "N"},
    {"--require", "CONDITION"},
    {"--restore", "RUN", ValueKind::folder},
    {"--resume", "auto|never|must|CHECKPOINT", ValueKind::checkpoint, "auto never must best"},
    {"--rounds", "N"},
    {"--rows", "N"},
    {"--run-dir", "FOLDER", ValueKind::folder},
    {"--samples", "N"},
    {"--seconds", "SECONDS"},
    {"--sort", "NAME"},
    {"--steps", "N"},
    {"--top", "K"},
    {"--torch", "FILE", ValueKind::file},
    {"--verdict", "FILE", ValueKind::file},
    {"--versions", "N"},
    {"--weights", "FILE", ValueKind::checkpoint},
    {"--workers", "N"},
    {"--world-size", "N"},
    {"--zoo", "NETWORK", ValueKind::text,
     "logistic mlp lenet alexnet vgg11 vgg11_bn vgg16 vgg16_bn resnet18 resnet34 resnet50 resnet20 "
     "resnet56 wide_resnet28_10 mobilenet_v2 mobilenet_v3_small squeezenet1_1 densenet121 "
     "convnext_tiny"},
};

}  // namespace

const ValueName* value_name(std::string_view option) {
  const auto* const found =
      std::find_if(std::begin(kValueNames), std::end(kValueNames),
                   [&](const ValueName& value) { return value.option == option; });
  return found == std::end(kValueNames) ? nullptr : found;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace dpt
