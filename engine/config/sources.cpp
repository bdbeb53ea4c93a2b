#include "engine/config/sources.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/config/former_keys.h"
#include "engine/config/issue.h"
#include "engine/config/merge.h"
#include "engine/config/merge_configs.h"
#include "engine/config/model_source.h"
#include "engine/config/overrides.h"
#include "engine/config/paths.h"
#include "engine/config/scalars.h"
#include "kernels/base/shell_word.h"

namespace dpt {
namespace {

constexpr std::size_t kMaxExtends = 16;

/// Returns a path that is the same for all names of a file, to find cycles.
std::string identity(const std::string& file) {
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(file, error);
  return error ? file : path.string();
}

class Loader {
 public:
  Loader(const SpecTables& tables, std::vector<std::string>& files,
         std::vector<ConfigIssue>& issues)
      : tables_(tables), files_(files), issues_(issues) {}

  YamlNode load(const std::string& text, const std::string& file) {
    files_.push_back(file);
    chain_.push_back(identity(file));
    YamlNode tree = parse_yaml(text, file, issues_);
    if (tree.is_map()) {
      if (const YamlNode* extends = tree.find(kExtendsKey)) {
        std::optional<YamlNode> base = load_base(*extends, file);
        remove_child(tree, kExtendsKey);
        if (base && base->kind != YamlNode::Kind::map) {
          // The problems of the base are already reported; its fields would only be reported as
          // missing.
          tree = std::move(*base);
        } else if (base) {
          merge_configs(*base, std::move(tree), tables_);
          tree = std::move(*base);
        }
      }
    }
    chain_.pop_back();
    return tree;
  }

 private:
  YamlNode broken(const Where& at, std::string text) {
    issues_.push_back({at, std::move(text)});
    YamlNode node;
    node.kind = YamlNode::Kind::broken;
    return node;
  }

  std::optional<YamlNode> load_base(const YamlNode& extends, const std::string& file) {
    const Scalar<std::string> name = read_string(extends);
    if (!name.value || name.value->empty()) {
      if (extends.kind == YamlNode::Kind::broken) return extends;
      return broken(
          extends.where,
          fmt::format("expected the path of a config in 'extends', found {}", found_text(extends)));
    }
    const ExpandedPath expanded = expand_variables(*name.value);
    if (!expanded.problem.empty()) return broken(extends.where, expanded.problem);
    std::string path = expanded.path;
    if (!std::filesystem::path(path).is_absolute()) {
      path = (std::filesystem::path(folder_of_config(file)) / path).string();
    }
    const std::string id = identity(path);
    if (std::find(chain_.begin(), chain_.end(), id) != chain_.end()) {
      return broken(extends.where,
                    fmt::format("'extends' leads back to {}: a config cannot extend itself", path));
    }
    if (chain_.size() >= kMaxExtends) {
      return broken(extends.where,
                    fmt::format("expected at most {} configs that extend one another, found more",
                                kMaxExtends));
    }
    std::string text;
    try {
      text = read_config_text(path);
    } catch (const Error& error) {
      return broken(extends.where, error.what());
    }
    YamlNode base = load(text, path);
    if (base.kind == YamlNode::Kind::map || base.kind == YamlNode::Kind::broken) return base;
    return broken(base.where, fmt::format("expected a config, found {}", found_text(base)));
  }

  const SpecTables& tables_;
  std::vector<std::string>& files_;
  std::vector<ConfigIssue>& issues_;
  std::vector<std::string> chain_;
};

}  // namespace

std::string read_config_text(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    std::string advice;
    if (std::filesystem::exists(file + "/config.yaml", error)) {
      advice = fmt::format("; `dpt train {}` continues the run in it",
                           shell_word(file + "/config.yaml"));
    } else if (std::filesystem::is_directory(file + "/train", error)) {
      advice = fmt::format(
          "; `dpt config init --data {} > config.yaml` writes a config for the images in it",
          shell_word(file));
    }
    fail(ErrorKind::usage, "cannot read the config {}: it is a folder{}", file, advice);
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(ErrorKind::usage, "cannot read the config {}: {}", file, std::strerror(errno));
  // Read up to one byte past the limit. That byte shows that the file is too long, even if the file
  // is an endless device.
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail(ErrorKind::usage, "cannot read the config {}: {}", file, std::strerror(errno));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) {
    fail(ErrorKind::usage, "cannot read the config {}: expected at most {} bytes, found more", file,
         kMaxConfigBytes);
  }
  if (text.empty() && std::filesystem::is_fifo(file, error)) {
    fail(ErrorKind::usage,
         "cannot read the config {}: the pipe is empty. A pipe can be read only once; --nproc and "
         "--smoke read the config several times and need a file",
         file);
  }
  return text;
}

YamlNode load_tree(const SpecTables& tables, const Catalog& catalog, const std::string& text,
                   const std::string& file, const std::vector<std::string>& overrides, bool stored,
                   std::vector<std::string>& files, std::vector<ConfigIssue>& issues) {
  YamlNode tree = Loader(tables, files, issues).load(text, file);
  if (tree.kind == YamlNode::Kind::broken) return tree;
  if (stored) rename_former_keys(tables.root, tree);
  std::vector<LayerOverride> for_layers;
  // Sets the path of all issues, from `first` on, that have no path yet.
  const auto name_field = [&](std::size_t first, const std::string& path) {
    for (std::size_t i = first; i < issues.size(); ++i) {
      if (issues[i].path.empty()) issues[i].path = path;
    }
  };
  std::size_t before = issues.size();
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const int argument = static_cast<int>(i) + 1;
    before = issues.size();
    if (is_for_layers(overrides[i])) {
      for_layers.push_back({overrides[i], argument});
    } else {
      apply_override(tree, overrides[i], argument, issues);
    }
    name_field(before, overrides[i].substr(0, overrides[i].find('=')));
  }
  before = issues.size();
  make_layers(tables, catalog, tree, for_layers, issues);
  name_field(before, "model");
  return tree;
}

YamlNode load_data_tree(const SpecTables& tables, const std::string& text, const std::string& file,
                        const std::vector<std::string>& overrides, std::vector<std::string>& files,
                        std::vector<ConfigIssue>& issues) {
  YamlNode tree = Loader(tables, files, issues).load(text, file);
  for (std::size_t i = 0; i < overrides.size() && tree.kind != YamlNode::Kind::broken; ++i) {
    apply_override(tree, overrides[i], static_cast<int>(i) + 1, issues);
  }
  return tree;
}

}  // namespace dpt
