// Small files, links, folders and moves: their effects, and their errors.
#include "kernels/base/file_io.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>

#include "kernels/base/file_handle.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/held_path.h"
#include "tests/support/files.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

/// A file on another file system.
class Elsewhere {
 public:
  explicit Elsewhere(const std::string& bytes) : fd_(::memfd_create("elsewhere", MFD_CLOEXEC)) {
    REQUIRE(fd_ >= 0);
    REQUIRE(write_all(fd_, std::as_bytes(std::span(bytes))) == 0);
  }
  ~Elsewhere() { ::close(fd_); }
  Elsewhere(const Elsewhere&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

TEST_CASE("folders of paths") {
  CHECK(folder_of("a") == ".");
  CHECK(folder_of("/a") == "/");
  CHECK(folder_of("a/b") == "a");
  CHECK(folder_of("/a/b/c") == "/a/b");
}

TEST_CASE("a copy is a file of its own, and replaces what was there") {
  const TempDir folder;
  write_all_text(folder.file("a"), "new");
  write_all_text(folder.file("b"), "old");
  write_all_text(folder.file("b.tmp"), "left over");
  copy_durably(folder.file("a"), folder.file("b"));
  CHECK_FALSE(fs::exists(folder.file("b.tmp")));
  // Writing into the copy in place, as cp does, changes only the copy.
  write_all_text(folder.file("b"), "foreign");
  CHECK(read_all(folder.file("a")) == "new");
  // A link is followed.
  fs::create_symlink("a", folder.file("link"));
  copy_durably(folder.file("link"), folder.file("b"));
  CHECK(fs::is_regular_file(fs::symlink_status(folder.file("b"))));
  CHECK(read_all(folder.file("b")) == "new");
  CHECK_FALSE(fs::exists(folder.file("b.tmp")));
  fs::create_directory(folder.file("taken"));
  const std::string to = folder.file("taken");
  CHECK(error_of([&] { copy_durably(folder.file("a"), to); }, to) ==
        "F: cannot rename into place (after 3 bytes): Is a directory; if the file already existed, "
        "it is unchanged");
  CHECK_FALSE(fs::exists(folder.file("taken.tmp")));
  const std::string none = folder.file("none");
  CHECK(error_of([&] { copy_durably(none, folder.file("b")); }, none) ==
        "F: cannot open: No such file or directory");
  CHECK(read_all(folder.file("b")) == "new");
}

TEST_CASE("copies of files of any size, also from another file system") {
  const TempDir folder;
  const std::string path = folder.file("copy");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, (std::size_t{2} << 20) + 4711}) {
    CAPTURE(size);
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i % 251);
    const Elsewhere source(bytes);
    copy_durably(source.path(), path);
    CHECK(fs::is_regular_file(fs::symlink_status(path)));
    CHECK((read_all(path) == bytes));
    CHECK((read_whole_file(path) == bytes));
    CHECK_FALSE(fs::exists(path + ".tmp"));
  }
}

TEST_CASE("reading: from where, how much, and where the file ends before that") {
  const TempDir folder;
  const std::string path = folder.file("a");
  write_all_text(path, "0123456789");
  std::uint64_t size = 0;
  const FileHandle file = open_regular_file(path, size);
  CHECK(size == 10);
  std::string part(4, '?');
  read_exactly(file, path, 3, std::as_writable_bytes(std::span(part)));
  CHECK(part == "3456");
  CHECK(error_of([&] { read_exactly(file, path, 8, std::as_writable_bytes(std::span(part))); },
                 path) == "F: expected 2 more bytes at byte 10, found the end of the file");
  const FileHandle folder_handle = open_file(folder.path(), O_RDONLY | O_DIRECTORY);
  CHECK(error_of(
            [&] { read_exactly(folder_handle, path, 8, std::as_writable_bytes(std::span(part))); },
            path) == "F: cannot read at byte 8: Is a directory");
}

TEST_CASE("folders are made with those above them, unless something else has their name") {
  const TempDir folder;
  make_folders(folder.file("a/b/c"));
  CHECK(fs::is_directory(folder.file("a/b/c")));
  make_folders(folder.file("a/b/c"));
  make_folders("");
  write_all_text(folder.file("file"), "");
  const std::string path = folder.file("file");
  CHECK(error_of([&] { make_folders(path); }, path) == "F: expected a folder, found a file");
  CHECK(error_of([&] { make_folders(path + "/x"); }, path) == "F: expected a folder, found a file");
  CHECK(error_of([&] { make_folders("/proc/none"); }, "/proc/none") ==
        "F: cannot create the folder: No such file or directory");
}

TEST_CASE("a write that fails at its end tells how many bytes it had written") {
  const TempDir folder;
  const std::string path = folder.file("taken");
  fs::create_directory(path);
  AtomicFile file(path);
  const std::string text = "12345";
  file.write(std::as_bytes(std::span(text)));
  file.write(std::as_bytes(std::span(text).first(2)));
  CHECK(error_of([&] { file.commit(); }, path) ==
        "F: cannot rename into place (after 7 bytes): Is a directory; if the file already existed, "
        "it is unchanged");
}

TEST_CASE("moving and removing say what they cannot do") {
  const TempDir folder;
  fs::create_directory(folder.file("to"));
  write_all_text(folder.file("a"), "text");
  move_durably(folder.file("a"), folder.file("to/b"));
  CHECK_FALSE(fs::exists(folder.file("a")));
  CHECK(read_all(folder.file("to/b")) == "text");
  const std::string none = folder.file("none");
  CHECK(error_of([&] { move_durably(none, folder.file("x")); }, none) ==
        "F: cannot move it to " + folder.file("x") + ": No such file or directory");
  remove_durably(folder.file("to/b"));
  CHECK_FALSE(fs::exists(folder.file("to/b")));
  remove_durably(folder.file("to/b"));  // The file is gone already, which was the purpose.
  const std::string to = folder.file("to");
  CHECK(error_of([&] { remove_durably(to); }, to) == "F: cannot remove it: Is a directory");
}

TEST_CASE("making a folder durable: where there is none, and where it means nothing") {
  const TempDir folder;
  CHECK(sync_folder(folder.path()) == 0);
  CHECK(sync_folder(folder.file("none")) == ENOENT);
  write_all_text(folder.file("file"), "");
  CHECK(sync_folder(folder.file("file")) == ENOTDIR);
  // A file system that cannot sync folders reports EINVAL; then a rename has to suffice.
  CHECK(sync_folder("/proc") == 0);
}

TEST_CASE("a folder that cannot be synced after the work in it: the message says what is done") {
  const TempDir folder;
  write_all_text(folder.file("a"), "text");
  // Renames and removals need no descriptor; syncing the folder needs one.
  const auto without_descriptors = [](const auto& call, const std::string& path) {
    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const rlimit none{0, usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const std::string text = error_of(call, path);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
    return text;
  };
  const std::string a = folder.file("a"), b = folder.file("b");
  const std::string why = ", but its folder cannot be synced to disk: Too many open files";
  CHECK(without_descriptors([&] { move_durably(a, b); }, b) == "F: is in place" + why);
  CHECK(read_all(b) == "text");
  CHECK(without_descriptors([&] { remove_durably(b); }, b) == "F: is removed" + why);
  CHECK_FALSE(fs::exists(b));
  CHECK(without_descriptors([&] { make_folders(b); }, b) == "F: is created" + why);
  CHECK(fs::is_directory(b));
}

TEST_CASE("a handle closes its file once, and gives it away") {
  const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  const TempDir folder;
  FileHandle first = open_file(folder.file("a"), O_RDWR | O_CREAT, 0600);
  REQUIRE(first.is_open());
  // Child processes do not inherit the descriptor.
  CHECK((::fcntl(first.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  const int a = first.fd();
  FileHandle second = open_file(folder.file("b"), O_RDWR | O_CREAT, 0600);
  const int b = second.fd();
  second = std::move(first);
  CHECK(second.fd() == a);
  CHECK_FALSE(is_open(b));
  CHECK(is_open(a));
  FileHandle& same = second;
  second = std::move(same);
  CHECK(second.fd() == a);
  CHECK(is_open(a));
  { const FileHandle third = std::move(second); }
  CHECK_FALSE(is_open(a));
  CHECK_FALSE(open_file(folder.file("none"), O_RDONLY).is_open());
}

TEST_CASE("a move to another file system is a copy, whatever is moved") {
  const TempDir here;
  const TempDir there("/dev/shm");
  write_all_text(here.file("a"), "text");
  fs::create_directories(here.file("d/inner"));
  write_all_text(here.file("d/inner/b"), "more");
  fs::create_symlink("inner/b", here.file("d/link"));
  // An earlier, unfinished move has left this folder.
  fs::create_directories(there.file("d.tmp/inner"));
  for (const char* name : {"a", "d"}) {
    move_durably(here.file(name), there.file(name));
    CHECK_FALSE(fs::exists(here.file(name)));
    CHECK_FALSE(fs::exists(there.file(name + std::string(".tmp"))));
  }
  CHECK(read_all(there.file("a")) == "text");
  CHECK(read_all(there.file("d/inner/b")) == "more");
  CHECK(fs::read_symlink(there.file("d/link")) == "inner/b");
  // A folder may replace an empty one.
  fs::create_directory(here.file("d"));
  move_durably(there.file("d"), here.file("d"));
  CHECK(read_all(here.file("d/inner/b")) == "more");
}

TEST_CASE("a folder that is held is the same one wherever it is moved") {
  const TempDir dir;
  fs::create_directory(dir.file("f"));
  const HeldPath held = HeldPath::hold(dir.file("f"));
  CHECK(held.text() == dir.file("f"));
  CHECK((held / "a").folder().text() == dir.file("f"));
  CHECK((held / "a" / "b").text() == dir.file("f/a/b"));
  CHECK((held / "a" / "b").folder().text() == dir.file("f/a"));
  CHECK((held / "a" / "b").last_name() == "b");
  fs::rename(dir.file("f"), dir.file("g"));
  fs::create_directory(dir.file("f"));
  make_folders(held / "x" / "y");
  write_file_atomically(held / "x/y/file", "text");
  copy_durably(held / "x/y/file", held / "copy");
  move_durably(held / "copy", held / "x" / "moved");
  link_durably("y/file", held / "x" / "link");
  CHECK(fs::is_empty(dir.file("f")));
  CHECK(read_all(dir.file("g/x/moved")) == "text");
  CHECK(read_whole_file(held / "x" / "link") == "text");
  CHECK(list_names(held / "x") == std::vector<std::string>{"link", "moved", "y"});
  CHECK(entry_type(held / "x" / "link") == EntryType::file);
  CHECK(entry_type(held / "x" / "link", false) == EntryType::link);
  CHECK(entry_type(held / "none") == EntryType::none);
  CHECK(list_names(held / "none").empty());
  CHECK(is_same_entry(held, dir.file("g")));
  CHECK_FALSE(is_same_entry(held, dir.file("f")));
  // The target of a link stays.
  write_all_text(dir.file("precious"), "mine");
  fs::create_symlink(dir.file("precious"), dir.file("g/x/y/out"));
  fs::create_directory_symlink(dir.path(), dir.file("g/x/up"));
  remove_if_empty(held / "x");
  CHECK(fs::exists(dir.file("g/x/y/file")));
  remove_tree(held / "x");
  CHECK(fs::is_empty(dir.file("g")));
  CHECK(read_all(dir.file("precious")) == "mine");
  fs::create_symlink("nowhere", dir.file("dangling"));
  const std::string dangling = dir.file("dangling");
  CHECK(error_of([&] { make_folders(dangling); }, dangling) ==
        "F: expected a folder, found a link to nowhere, which is not a folder: create that folder, "
        "or remove the link");
}

TEST_CASE("every call that a disk may hold up is progress of the thread's replica") {
  const TempDir folder;
  const std::string a = folder.file("a"), taken = folder.file("taken");
  write_all_text(a, "a");
  fs::create_directory(taken);
  const auto beats_of = [](const std::function<void()>& work) {
    const auto before = heartbeat_of_thread();
    auto heartbeat = std::make_shared<Heartbeat>();
    set_heartbeat_of_thread(heartbeat);
    work();
    set_heartbeat_of_thread(before);
    return heartbeat->beats();
  };
  // Each call beats when it begins and when it ends.
  CHECK(beats_of([&] { sync_folder(taken); }) == 2);
  CHECK(beats_of([&] { CHECK_THROWS_AS(move_durably(a, taken), Error); }) == 2);
  CHECK(beats_of([&] { remove_if_empty(taken); }) == 2);
  const FileHandle file = open_file(a, O_WRONLY);
  const std::string bytes = "bytes";
  CHECK(beats_of([&] { CHECK(write_all(file.fd(), std::as_bytes(std::span(bytes))) == 0); }) == 2);
  // Removal of a crash's leftovers, a write, a sync, a close, a rename, and a sync of the folder.
  CHECK(beats_of([&] { write_file_atomically(folder.file("b"), "text"); }) == 12);
}

}  // namespace
}  // namespace dpt
