#include "datasets/folder_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace {

/// Returns "a, b, c and 2 more".
std::string some_paths(const std::vector<std::string>& paths) {
  constexpr std::size_t kMaxNamed = 3;
  const std::size_t named = std::min(paths.size(), kMaxNamed);
  std::string text = fmt::format(
      "{}", fmt::join(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (paths.size() > named) text += fmt::format(" and {} more", paths.size() - named);
  return text;
}

/// Returns the counts of the first groups: "2 .json, 1 Thumbs.db".
std::string counts_text(const std::map<std::string, std::int64_t>& groups) {
  constexpr std::size_t kMaxNamed = 10;
  std::vector<std::string> texts;
  std::int64_t others = 0;
  for (const auto& [group, count] : groups) {
    if (texts.size() < kMaxNamed) {
      texts.push_back(fmt::format("{} {}", count, group));
    } else {
      others += count;
    }
  }
  if (others > 0) texts.push_back(fmt::format("and {} other{}", others, others == 1 ? "" : "s"));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::int64_t total_of(const std::map<std::string, std::int64_t>& groups) {
  return std::accumulate(groups.begin(), groups.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& group) { return sum + group.second; });
}

}  // namespace

FolderReport::Group FolderReport::group_of(Kind kind, const std::string& path) {
  switch (kind) {
    case Kind::empty_class:
      return {"", "an empty class folder", "empty class folders",
              "put images into it, or remove it", "put images into them, or remove them"};
    case Kind::next_to_classes:
      return {"", "an image next to the class folders", "images next to the class folders",
              "move it into the folder of its class",
              "move them into the folders of their classes"};
    case Kind::unread_format: {
      const ImageFormat& format = *format_of_name(path);
      return {format.name, fmt::format("{}, which dpt does not read", format.with_article),
              fmt::format("{}, which dpt does not read", format.plural),
              fmt::format("convert it with {}", format.converter),
              fmt::format("convert them with {}", format.converter)};
    }
    case Kind::dead_link:
      return {"broken link", "a link that leads nowhere", "links that lead nowhere",
              "restore its target or remove it", "restore their targets or remove them"};
    case Kind::not_regular:
      return {"not a regular file", "not a regular file", "not regular files", "remove it",
              "remove them"};
    case Kind::message:
      break;
  }
  return {"", path, "", "", ""};
}

void FolderReport::add(Kind kind, const std::string& path) {
  Group group = group_of(kind, path);
  std::vector<Group>& groups = problems_[kind];
  auto found = std::find_if(groups.begin(), groups.end(),
                            [&](const Group& each) { return each.one == group.one; });
  if (found == groups.end()) found = groups.insert(groups.end(), std::move(group));
  found->paths.push_back(path);
}

void FolderReport::add(const WalkedFolder& walked) {
  for (const BadFile& bad : walked.bad) {
    const Kind kind = bad.kind == BadFileKind::unread_format ? Kind::unread_format
                      : bad.kind == BadFileKind::dead_link   ? Kind::dead_link
                                                             : Kind::not_regular;
    add(kind, bad.path);
  }
  for (const auto& [group, count] : walked.others) others_[group] += count;
  loops_.insert(loops_.end(), walked.loops.begin(), walked.loops.end());
}

std::string FolderReport::line_of(const Group& group, Kind kind) const {
  if (kind == Kind::message) return group.one;
  const bool is_one = group.paths.size() == 1;
  std::string line =
      fmt::format("{}: {}: {}", some_paths(group.paths), is_one ? group.one : group.many,
                  is_one ? group.remedy_of_one : group.remedy_of_many);
  if (kind >= Kind::unread_format) {
    line += fmt::format(", or leave {} out with data.on_bad_sample: skip", is_one ? "it" : "them");
  }
  return line;
}

void FolderReport::check() const {
  std::vector<std::string> lines;
  std::size_t problems = 0;
  for (const auto& [kind, groups] : problems_) {
    if (leaves_out_ && kind >= Kind::unread_format) continue;
    for (const Group& group : groups) {
      lines.push_back(line_of(group, kind));
      problems += group.paths.size();
    }
  }
  if (lines.empty()) return;
  if (lines.size() == 1) throw Error(ErrorKind::data, lines[0]);
  fail(ErrorKind::data, "{}: {} problems with the files:\n  {}", owner_, problems,
       fmt::join(lines, "\n  "));
}

std::vector<std::string> FolderReport::notes() const {
  std::vector<std::string> notes;
  if (const std::int64_t count = total_of(others_); count > 0) {
    notes.push_back(fmt::format("{}: {} left out: {}", owner_,
                                count == 1 ? "1 file that is not an image is"
                                           : fmt::format("{} files that are not images are", count),
                                counts_text(others_)));
  }
  std::map<std::string, std::int64_t> bad;
  for (const auto& [kind, groups] : problems_) {
    if (!leaves_out_ || kind < Kind::unread_format) continue;
    for (const Group& group : groups) {
      bad[group.label] += static_cast<std::int64_t>(group.paths.size());
    }
  }
  if (const std::int64_t count = total_of(bad); count > 0) {
    notes.push_back(fmt::format("{}: {} that cannot be read {} left out: {}", owner_,
                                count == 1 ? "1 file" : fmt::format("{} files", count),
                                count == 1 ? "is" : "are", counts_text(bad)));
  }
  if (!loops_.empty()) {
    notes.push_back(fmt::format(
        "{}: {} left out: {}", owner_,
        loops_.size() == 1 ? "1 link to a folder above it is"
                           : fmt::format("{} links to a folder above them are", loops_.size()),
        some_paths(loops_)));
  }
  return notes;
}

}  // namespace dpt
