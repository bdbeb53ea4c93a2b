#include "engine/self_check/check_cache.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "kernels/base/file_io.h"
#include "kernels/base/user_cache.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace dpt::testing {
namespace {

using Names = std::set<std::string>;

TEST_CASE("checked operations are kept by machine and added to") {
  const TempDir folder;
  const CheckCache cache(folder.path() + "/new/folder/file.json");
  CHECK(cache.checked("a").empty());
  CHECK(cache.add("a", {"x", "y"}).empty());
  CHECK(cache.add("b", {"z"}).empty());
  CHECK(cache.add("a", {"y", "w"}).empty());
  CHECK((cache.checked("a") == Names{"w", "x", "y"}));
  CHECK((cache.checked("b") == Names{"z"}));
  CHECK(cache.checked("c").empty());
}

TEST_CASE("a damaged cache counts as empty and is replaced") {
  const TempDir folder;
  const std::string path = folder.path() + "/file.json";
  const CheckCache cache(path);
  for (const char* text :
       {"", "{", "[]", "{\"format\": 2}", "{\"format\": 7, \"machines\": {}}",
        "{\"format\": 2, \"machines\": []}", "{\"format\": 2, \"machines\": {\"a\": 3}}"}) {
    INFO(text);
    write_all_text(path, text);
    CHECK(cache.checked("a").empty());
    CHECK(cache.add("a", {"x"}).empty());
    CHECK((cache.checked("a") == Names{"x"}));
  }
}

TEST_CASE("a cache that cannot be written says why") {
  const TempDir folder;
  write_all_text(folder.path() + "/file", "");
  const CheckCache below_a_file(folder.path() + "/file/cache.json");
  CHECK(below_a_file.checked("a").empty());
  CHECK(below_a_file.add("a", {"x"}) ==
        folder.path() + "/file: cannot create the folder: Not a directory");
  CHECK(CheckCache("").add("a", {"x"}) == no_user_cache_text());
  std::filesystem::create_directory(folder.path() + "/folder.json");
  CHECK(!CheckCache(folder.path() + "/folder.json").add("a", {"x"}).empty());
}

TEST_CASE("a cache that exists and cannot be written says why, unless nothing is lost") {
  const TempDir folder;
  const CheckCache cache(folder.path() + "/file.json");
  REQUIRE(cache.add("a", {"x", "y"}).empty());
  // A folder in place of the temporary file makes every write fail, even for root.
  const std::string temporary = folder.path() + "/file.json" + kTemporarySuffix;
  std::filesystem::create_directory(temporary);
  CHECK(cache.add("a", {"x", "z"}).find("/file.json: cannot create a temporary file") !=
        std::string::npos);
  CHECK(cache.add("a", {"y"}).empty());
  CHECK((cache.checked("a") == Names{"x", "y"}));
}

/// Sets a variable of the environment, or removes it if the value is null.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST_CASE("a variable that is not an absolute path is not the folder of caches") {
  const Variable relative("XDG_CACHE_HOME", "there");
  {
    const Variable home("HOME", "/home/x");
    CHECK(user_cache_path("f") == "/home/x/.cache/dpt/f");
    CHECK(ignored_cache_home_text() ==
          "XDG_CACHE_HOME is the relative path 'there' and ignored: set it to an absolute path. "
          "~/.cache is used instead");
    for (const char* usual : {"/c", ""}) {
      const Variable cache("XDG_CACHE_HOME", usual);
      CHECK(ignored_cache_home_text().empty());
    }
  }
  const Variable home("HOME", "");
  CHECK(user_cache_path("f").empty());
  CHECK(ignored_cache_home_text().empty());
  CHECK(no_user_cache_text() == "XDG_CACHE_HOME is the relative path 'there', and HOME is empty");
  const Variable none("XDG_CACHE_HOME", nullptr);
  CHECK(no_user_cache_text() == "XDG_CACHE_HOME is not set, and HOME is empty");
}

}  // namespace
}  // namespace dpt::testing
