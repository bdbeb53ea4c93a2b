// Builds the tree from parse events.
#include "engine/config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "kernels/base/utf8.h"

namespace dpt {
namespace {

/// Thrown to end the parse of a document that must not be read further; the issue is already
/// recorded.
struct Refused {};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& file, std::vector<ConfigIssue>& issues)
      : file_(file), issues_(issues) {
    line_starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_starts_.push_back(i + 1);
      if ((static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U) continuations_.push_back(i);
    }
    text_ = text;
  }

  YamlNode take() { return std::move(root_); }

  /// Converts a position: yaml-cpp counts lines and bytes from 0, users count lines and characters
  /// from 1.
  Where where(const YAML::Mark& mark) const {
    if (mark.is_null() || mark.line < 0) return {file_, 1, 1};
    const auto line = static_cast<std::size_t>(mark.line);
    int column = mark.column + 1;
    if (line < line_starts_.size()) {
      const std::size_t begin = line_starts_[line];
      const std::size_t end =
          std::min(text_.size(), begin + static_cast<std::size_t>(std::max(0, mark.column)));
      column -= static_cast<int>(continuations_before(end) - continuations_before(begin));
    }
    return {file_, mark.line + 1, column};
  }

  std::string_view line_text(int line) const {
    if (line < 1 || static_cast<std::size_t>(line) > line_starts_.size()) return {};
    const std::size_t begin = line_starts_[line - 1];
    return std::string_view(text_).substr(begin, text_.find('\n', begin) - begin);
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_size(mark, 1, 1);
    YamlNode node;
    node.where = where(mark);
    complete_leaf(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    YamlNode node;
    int depth = 1;
    if (found == anchors_.end()) {
      issue(where(mark), "an alias refers to a value that contains it: a config cannot be cyclic");
      node.kind = YamlNode::Kind::broken;
    } else {
      check_size(mark, found->second.nodes, found->second.depth);
      depth = found->second.depth;
      node = copy_of(found->second);
    }
    if (expects_key()) node.where = where(mark);
    complete(std::move(node), 0, nodes_ - 1, depth);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    check_size(mark, 1, 1);
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    // yaml-cpp gives a plain scalar the tag "?" and a quoted one "!"; for an explicit tag, it does
    // not report which of the two the scalar is.
    node.is_plain = tag != "!";
    node.text = value;
    node.where = where(mark);
    complete_leaf(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  /// A list or map whose end has not been reached.
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    std::size_t nodes_before = 0;  ///< number of nodes before this one
    int depth = 1;                 ///< levels so far, including its own
    bool has_key = false;          ///< map: the next node is a value
    bool drop = false;             ///< map: the key was invalid, so its value is discarded
    std::string key;
    Where key_where;
    std::map<std::string, int> lines;  ///< map: line of each key
  };
  /// A node that aliases may refer to. It is stored by its place in the tree: copies would take
  /// memory for each level of nested anchors.
  struct Anchored {
    std::vector<std::size_t> at;  ///< index among the children at each level, from the root
    YamlNode leaf;                ///< used for a node without children or outside of the tree
    bool is_leaf = false;
    std::size_t nodes = 1;
    int depth = 1;
  };

  std::size_t continuations_before(std::size_t offset) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(continuations_, offset) -
                                    continuations_.begin());
  }

  void issue(const Where& at, std::string text) { issues_.push_back({at, std::move(text)}); }

  bool expects_key() const {
    return !open_.empty() && open_.back().node.is_map() && !open_.back().has_key;
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    issue(where(mark),
          fmt::format("the tag '{}' is not accepted: a config has plain values only", tag));
  }

  void check_size(const YAML::Mark& mark, std::size_t nodes, int depth) {
    nodes_ += nodes;
    if (nodes_ > kMaxConfigNodes) {
      issue(where(mark), fmt::format("expected at most {} values in a config, found more (aliases "
                                     "count as often as they are used)",
                                     kMaxConfigNodes));
      throw Refused{};
    }
    if (static_cast<int>(open_.size()) + depth > kMaxConfigDepth) {
      issue(where(mark),
            fmt::format("expected at most {} levels of nesting, found more", kMaxConfigDepth));
      throw Refused{};
    }
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    check_tag(mark, tag);
    check_size(mark, 1, 1);
    Open entry;
    entry.node.kind = kind;
    entry.node.where = where(mark);
    entry.anchor = anchor;
    entry.nodes_before = nodes_ - 1;
    open_.push_back(std::move(entry));
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    complete(std::move(closed.node), closed.anchor, closed.nodes_before, closed.depth);
  }

  void complete_leaf(YamlNode node, YAML::anchor_t anchor) {
    complete(std::move(node), anchor, nodes_ - 1, 1);
  }

  /// Puts a node into its place. `nodes_before` is the number of nodes before it, and the node
  /// itself is `depth` levels deep.
  void complete(YamlNode node, YAML::anchor_t anchor, std::size_t nodes_before, int depth) {
    if (anchor != 0) keep(node, anchor, nodes_ - nodes_before, depth);
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, depth + 1);
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.children.push_back(std::move(node));
    } else if (!parent.has_key) {
      take_key(parent, node);
    } else {
      parent.has_key = false;
      if (parent.drop) return;
      node.key = std::move(parent.key);
      node.key_where = parent.key_where;
      // An absent value has the place of the next token, which does not help the user.
      if (node.kind == YamlNode::Kind::null) node.where = node.key_where;
      parent.node.children.push_back(std::move(node));
    }
  }

  /// Records, for aliases, the place where the node will be put.
  void keep(const YamlNode& node, YAML::anchor_t anchor, std::size_t nodes, int depth) {
    Anchored& anchored = anchors_[anchor];
    anchored = {};
    anchored.nodes = nodes;
    anchored.depth = depth;
    for (const Open& entry : open_) anchored.at.push_back(entry.node.children.size());
    // True if the node is a key, the value of an invalid key, or inside either.
    const bool is_outside = std::any_of(open_.begin(), open_.end(), [](const Open& entry) {
      return entry.node.is_map() && (!entry.has_key || entry.drop);
    });
    anchored.is_leaf = node.children.empty() || is_outside;
    if (!anchored.is_leaf) return;
    anchored.leaf = node;
    // A node with children that will not be in the tree cannot be copied later. The reason why it
    // is left out is already reported.
    if (!node.children.empty()) {
      anchored.leaf = {};
      anchored.leaf.kind = YamlNode::Kind::broken;
    }
  }

  YamlNode copy_of(const Anchored& anchored) const {
    if (anchored.is_leaf) return anchored.leaf;
    // Walk down the levels that are still open, then into the tree.
    const YamlNode* node = &open_.front().node;
    std::size_t open = 1;
    bool is_open = true;
    for (const std::size_t index : anchored.at) {
      is_open = is_open && index == node->children.size();
      node = is_open ? &open_[open++].node : &node->children[index];
    }
    YamlNode copy = *node;
    copy.key.clear();
    copy.key_where = {};
    return copy;
  }

  void take_key(Open& parent, const YamlNode& node) {
    parent.has_key = true;
    parent.drop = true;
    if (node.kind == YamlNode::Kind::broken) return;
    if (node.kind != YamlNode::Kind::scalar) {
      const char* found = node.is_list()  ? "a list"
                          : node.is_map() ? "a mapping"
                                          : "nothing before the ':'";
      issue(node.where, fmt::format("expected a key, found {}", found));
      return;
    }
    if (node.text == "<<") {
      issue(
          node.where,
          "merge keys (<<) are not supported: write the fields out, or put the common part into a "
          "file and name it with 'extends'");
      return;
    }
    const auto [first, is_new] = parent.lines.emplace(node.text, node.where.line);
    if (!is_new) {
      issue(node.where,
            fmt::format("duplicate key '{}': first defined in line {}", node.text, first->second));
      return;
    }
    parent.drop = false;
    parent.key = node.text;
    parent.key_where = node.where;
  }

  std::string file_;
  std::string text_;
  std::vector<ConfigIssue>& issues_;
  std::vector<std::size_t> line_starts_;
  /// Offsets of the continuation bytes of UTF-8 characters. Counting them in the line for every
  /// node of a long line would take quadratic time.
  std::vector<std::size_t> continuations_;
  YamlNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t nodes_ = 0;  ///< nodes so far, with aliases expanded
};

Where place_of(std::string_view text, std::size_t offset, const std::string& file) {
  Where at{file, 1, 1};
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++at.line;
      at.column = 1;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) {
      ++at.column;
    }
  }
  return at;
}

/// Returns true if the text may be passed to yaml-cpp, which would guess other encodings and would
/// treat one of the control characters as the end of the file.
bool is_text(std::string_view text, const std::string& file, std::vector<ConfigIssue>& issues) {
  if (text.size() > kMaxConfigBytes) {
    issues.push_back({{file, 1, 1},
                      fmt::format("expected a config of at most {} bytes, found {}",
                                  kMaxConfigBytes, text.size())});
    return false;
  }
  if (const std::size_t bad = find_bad_utf8(text); bad != std::string_view::npos) {
    issues.push_back(
        {place_of(text, bad, file), fmt::format("expected UTF-8 text, found the byte 0x{:02X}",
                                                static_cast<unsigned char>(text[bad]))});
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F) {
      issues.push_back({place_of(text, i, file),
                        fmt::format("expected text, found the control character 0x{:02X}", c)});
      return false;
    }
  }
  return true;
}

/// Returns a hint for the two most common mistakes, for which the parser's message is misleading.
std::string syntax_hint(const TreeBuilder& builder, int line) {
  for (const int near : {line, line - 1}) {
    const std::string_view text = builder.line_text(near);
    const std::size_t first = text.find_first_not_of(" \t");
    if (text.substr(0, first).find('\t') != std::string_view::npos) {
      return fmt::format("; line {} is indented with a tab, but YAML requires spaces", near);
    }
    if (text.find('{') < text.find("${") && text.find("${") != std::string_view::npos) {
      return "; inside {...}, put a value with ${...} into quotes";
    }
  }
  return {};
}

}  // namespace

const YamlNode* YamlNode::find(const std::string& name) const {
  for (const YamlNode& child : children) {
    if (child.key == name) return &child;
  }
  return nullptr;
}

YamlNode* YamlNode::find(const std::string& name) {
  return const_cast<YamlNode*>(std::as_const(*this).find(name));
}

YamlNode parse_yaml(const std::string& text, const std::string& file,
                    std::vector<ConfigIssue>& issues) {
  YamlNode broken;
  broken.kind = YamlNode::Kind::broken;
  broken.where = {file, 1, 1};
  std::string_view body = text;
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);
  if (!is_text(body, file, issues)) return broken;

  TreeBuilder builder{std::string(body), file, issues};
  try {
    std::istringstream stream{std::string(body)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      YamlNode empty;
      empty.where = {file, 1, 1};
      return empty;
    }
    YamlNode tree = builder.take();
    std::vector<ConfigIssue> ignored;
    TreeBuilder rest{std::string(body), file, ignored};
    if (parser.HandleNextDocument(rest)) {
      issues.push_back(
          {rest.take().where, "expected one YAML document, found a second one after '---'"});
    }
    return tree;
  } catch (const Refused&) {
    return broken;
  } catch (const YAML::Exception& error) {
    const Where at = builder.where(error.mark);
    issues.push_back(
        {at, fmt::format("not valid YAML: {}{}", error.msg, syntax_hint(builder, at.line))});
    return broken;
  }
}

}  // namespace dpt
