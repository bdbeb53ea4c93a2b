// Full disks, folders that cannot be written, signals, and processes killed during a save.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "engine/checkpoints/checkpoint.h"
#include "kernels/base/file_io.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/skip.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

int entries(const std::string& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

/// A small tmpfs, mounted for the life of the object if this process may mount.
class TinyDisk {
 public:
  TinyDisk(const std::string& folder, const std::string& options) : folder_(folder) {
    fs::create_directory(folder);
    mounted_ = ::mount("tmpfs", folder.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) {
      testing::skip_test(std::string("cannot mount a small tmpfs here: ") + std::strerror(errno));
    }
  }
  ~TinyDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string folder_;
  bool mounted_ = false;
};

TEST_CASE("a full disk: the old file stays, the temporary one goes") {
  const TempDir folder;
  const TinyDisk disk(folder.file("disk"), "size=64k");
  if (!disk.mounted()) return;
  const std::string path = folder.file("disk/a.safetensors");
  const std::vector<float> small(1000, 1.0F), large(100'000, 2.0F);
  write_safetensors(path, {}, {{"x", "F32", {1000}, small.data()}});
  const std::string before = read_all(path);
  const std::string text = error_of(
      [&] {
        write_safetensors(path, {}, {{"x", "F32", {100'000}, large.data()}});
      },
      path);
  CHECK(text.find("F: cannot write (after ") == 0);
  CHECK(text.find("No space left on device; if the file already existed, it is unchanged") !=
        std::string::npos);
  CHECK(read_all(path) == before);
  CHECK(SafetensorsFile::open(path).check_integrity() == Integrity::good);
  CHECK(entries(folder.file("disk")) == 1);
  // The space is free again for a file that fits.
  CHECK_NOTHROW(write_safetensors(path, {}, {{"x", "F32", {1000}, small.data()}}));
}

TEST_CASE("a write that fails at any byte, by the limit on the size of a file") {
  const TempDir folder;
  const std::string path = folder.file("a.safetensors");
  const std::vector<float> values(3000, 1.0F);
  const auto save = [&] { write_safetensors(path, {}, {{"x", "F32", {3000}, values.data()}}); };
  save();
  const std::string before = read_all(path);
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit = 0; limit < before.size(); limit += 1 + before.size() / 40) {
    const rlimit small{limit, usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const std::string text = error_of(save, path);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
    REQUIRE(text.find("F: cannot write (after ") == 0);
    REQUIRE(text.find("File too large") != std::string::npos);
    REQUIRE(read_all(path) == before);
    REQUIRE(entries(folder.path()) == 1);
  }
  ::signal(SIGXFSZ, old_handler);
}

TEST_CASE("folders that are missing or cannot be written") {
  const TempDir folder;
  const float one = 1;
  const auto save = [&](const std::string& path) {
    return error_of([&] { write_safetensors(path, {}, {{"x", "F32", {1}, &one}}); }, path);
  };
  CHECK(save(folder.file("none/a")) ==
        "F: cannot create a temporary file in its folder: No such file or directory; if the file "
        "already existed, it is unchanged");
  // The target is a folder: this is detected at the rename, and the temporary file is removed.
  fs::create_directory(folder.file("taken"));
  CHECK(save(folder.file("taken")).find("F: cannot rename into place (after ") == 0);
  CHECK(entries(folder.path()) == 1);

  const std::string closed = folder.file("closed");
  fs::create_directory(closed);
  write_safetensors(closed + "/a", {}, {{"x", "F32", {1}, &one}});
  const std::string before = read_all(closed + "/a");
  std::string expected = "Permission denied";
  if (::geteuid() == 0) {
    // Root may write anywhere except to a read-only mount.
    if (::mount(closed.c_str(), closed.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, closed.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
      ::umount2(closed.c_str(), MNT_DETACH);
      testing::skip_test(std::string("cannot mount a folder read-only here: ") +
                         std::strerror(errno));
      return;
    }
    expected = "Read-only file system";
  } else {
    fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
  }
  const std::string text = save(closed + "/a");
  if (::geteuid() == 0) {
    ::umount2(closed.c_str(), MNT_DETACH);
  } else {
    fs::permissions(closed, fs::perms::owner_all);
  }
  CHECK(text == "F: cannot create a temporary file in its folder: " + expected +
                    "; if the file already existed, it is unchanged");
  CHECK(read_all(closed + "/a") == before);
  CHECK(entries(closed) == 1);
}

TEST_CASE("a left-over or planted temporary file is replaced, never written through") {
  const TempDir folder;
  const std::string path = folder.file("a");
  write_all_text(folder.file("victim"), "precious");
  fs::create_symlink(folder.file("victim"), path + ".tmp");
  write_file_atomically(path, "text");
  CHECK(read_all(path) == "text");
  CHECK(read_all(folder.file("victim")) == "precious");
  CHECK(entries(folder.path()) == 2);
  write_file_atomically(path, "");
  CHECK(read_all(path) == "");
}

TEST_CASE("short writes and interrupted calls") {
  // A pipe accepts a few bytes at a time, and a timer interrupts the waiting writer.
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  struct sigaction usual {
  }, counting{};
  counting.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGALRM, &counting, &usual) == 0);  // without SA_RESTART
  std::string sent(3'000'000, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 >> 3);
  std::string received;
  std::thread reader([&] {
    sigset_t alarm;
    ::sigemptyset(&alarm);
    ::sigaddset(&alarm, SIGALRM);
    ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);  // so that the writer receives the signals
    std::vector<char> buffer(7919);
    for (int chunks = 0;; ++chunks) {
      if (chunks % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      const ssize_t got = ::read(ends[0], buffer.data(), buffer.size());
      if (got <= 0) break;
      received.append(buffer.data(), static_cast<std::size_t>(got));
    }
  });
  const itimerval every{{0, 500}, {0, 500}}, never{};
  ::setitimer(ITIMER_REAL, &every, nullptr);
  const int error = write_all(ends[1], std::as_bytes(std::span(sent)));
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  ::sigaction(SIGALRM, &usual, nullptr);
  CHECK(error == 0);
  CHECK(received == sent);

  const int read_only = ::open("/dev/null", O_RDONLY);
  CHECK(write_all(read_only, std::as_bytes(std::span(sent))) == EBADF);
  ::close(read_only);
}

TEST_CASE("killed in the middle of saves: the newest good checkpoint is whole") {
  const Plan plan = [] {
    Plan made;
    add_param(made, "fc.weight", {64, 1024});
    return made;
  }();
  for (int round = 0; round < 20; ++round) {
    const TempDir folder;
    save_checkpoint(folder.file(checkpoint_name(1)), plan, small_checkpoint(plan, 1));
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        for (std::int64_t step = 2;; ++step) {
          save_checkpoint(folder.file(checkpoint_name(step)), plan, small_checkpoint(plan, step));
          apply_retention(folder.path(), 2);
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(10'000 + round * 1'357));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    // A file with a checkpoint's name is always complete: the rename is the last step.
    const std::string newest = newest_good_checkpoint(
        folder.path(), [](const std::string& line) { FAIL_CHECK("not whole: ", line); });
    REQUIRE(newest != "");
    const Checkpoint loaded = load_checkpoint(newest, plan);
    CHECK(loaded.params == small_checkpoint(plan, loaded.state.step).params);
    CHECK(newest == folder.file(checkpoint_name(loaded.state.step)));
    apply_retention(folder.path(), 2);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      CHECK(entry.path().extension() != ".tmp");
    }
  }
}

}  // namespace
}  // namespace dpt
