#include "tests/io_faults/crash_model.h"

#include <fcntl.h>

#include <filesystem>
#include <functional>

namespace dpt::testing {
namespace fs = std::filesystem;
namespace {

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

CrashModel::CrashModel(const std::string& folder)
    : folder_(folder), root_(std::make_shared<Node>()) {
  const std::function<void(const std::string&, Node&)> read = [&](const std::string& path,
                                                                  Node& node) {
    node.is_folder = true;
    for (const auto& entry : fs::directory_iterator(path)) {
      const auto child = std::make_shared<Node>();
      if (entry.is_directory()) {
        read(entry.path().string(), *child);
      } else {
        child->bytes = child->durable = read_file(entry.path().string());
      }
      node.now[entry.path().filename().string()] = child;
    }
    node.disk = node.now;
  };
  read(folder, *root_);
}

CrashModel::NodePtr CrashModel::find(const std::string& path) const {
  if (path == folder_) return root_;
  if (path.size() <= folder_.size()) return nullptr;
  const NodePtr above = find(parent_of(path));
  if (!above) return nullptr;
  const auto found = above->now.find(name_of(path));
  return found == above->now.end() ? nullptr : found->second;
}

CrashModel::Node* CrashModel::parent(const std::string& path) const {
  return find(parent_of(path)).get();
}

void CrashModel::apply(const IoCall& call, const std::string& data) {
  Node* const folder = parent(call.path);
  if (call.error != 0 || (!folder && call.path != folder_)) return;
  const NodePtr node = find(call.path);
  if (call.kind == "open") {
    NodePtr& file = folder->now[name_of(call.path)];
    if (!file) file = std::make_shared<Node>();
    if ((call.where & O_TRUNC) != 0) file->bytes.clear();
  } else if (call.kind == "mkdir") {
    NodePtr& made = folder->now[name_of(call.path)];
    made = std::make_shared<Node>();
    made->is_folder = true;
  }
  if (!node) return;
  if (call.kind == "write") {
    const auto at = static_cast<std::size_t>(call.where);
    const auto size = static_cast<std::size_t>(call.bytes);
    if (node->bytes.size() < at + size) node->bytes.resize(at + size);
    node->bytes.replace(at, size, data, call.data_at, size);
  } else if (call.kind == "truncate") {
    node->bytes.resize(static_cast<std::size_t>(call.where));
  } else if (call.kind == "fsync") {
    node->durable = node->bytes;
  } else if (call.kind == "fsync_folder") {
    node->disk = node->now;
  } else if (call.kind == "rename") {
    folder->now.erase(name_of(call.path));
    parent(call.second)->now[name_of(call.second)] = node;
  } else if (call.kind == "link") {
    parent(call.second)->now[name_of(call.second)] = node;
  } else if (call.kind == "unlink") {
    folder->now.erase(name_of(call.path));
  }
}

std::map<std::string, std::string> CrashModel::after_crash(Keeps keeps) const {
  std::map<std::string, std::string> files;
  const std::function<void(const std::string&, const Node&)> list = [&](const std::string& path,
                                                                        const Node& node) {
    for (const auto& [name, child] : keeps == Keeps::names ? node.now : node.disk) {
      if (child->is_folder) {
        list(path + "/" + name, *child);
      } else {
        files[path + "/" + name] = child->durable;
      }
    }
  };
  list(folder_, *root_);
  return files;
}

}  // namespace dpt::testing
