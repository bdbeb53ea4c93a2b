// Idle threads read the samples of evaluations ahead, each sample once.
#include "engine/data/ahead_check.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "engine/data/split.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

/// Ten samples, some of them unreadable.
class NotedSource final : public DataSource {
 public:
  explicit NotedSource(std::set<std::int64_t> bad) : bad_(std::move(bad)) {}
  std::int64_t size() const override { return 10; }
  SampleShape shape() const override { return {1, 1, 1}; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }
  void read(std::int64_t index, std::span<std::byte> /*pixels*/,
            std::int32_t& label) const override {
    {
      const std::lock_guard lock(mutex_);
      read_.insert(index);
    }
    if (bad_.contains(index)) fail(ErrorKind::data, "{}: bad", describe(index));
    label = 0;
  }
  std::string describe(std::int64_t index) const override { return fmt::format("file {}", index); }
  std::string fingerprint() const override { return "noted"; }
  std::multiset<std::int64_t> read_so_far() const {
    const std::lock_guard lock(mutex_);
    return read_;
  }

 private:
  std::set<std::int64_t> bad_;
  std::vector<std::string> classes_ = {"one"};
  mutable std::mutex mutex_;
  mutable std::multiset<std::int64_t> read_;
};

bool never() {
  return false;
}

TEST_CASE("ahead check: each process reads its part of the test samples once") {
  for (const int threads : {1, 3}) {
    const auto pool = std::make_shared<DecoderPool>(threads);
    const auto test = std::make_shared<NotedSource>(std::set<std::int64_t>{});
    const Split split{test, {1, 3, 5, 7, 9}};
    AheadCheck check(split, {}, {1, 2}, pool);
    check.finish(never);
    check.rethrow();
    CHECK(test->read_so_far() == std::multiset<std::int64_t>{3, 7});
  }
}

TEST_CASE("ahead check: a sample that cannot be read is named, with what to do") {
  const auto pool = std::make_shared<DecoderPool>(2);
  const auto test = std::make_shared<NotedSource>(std::set<std::int64_t>{});
  const auto val = std::make_shared<NotedSource>(std::set<std::int64_t>{4});
  const std::string text =
      "file 4: bad. An evaluation needs this sample: repair or remove the file (dpt data check "
      "lists all unreadable files), or leave it out with data.on_bad_sample: skip";
  const Split good{test, {0, 1}}, bad{val, {3, 4}}, none;
  AheadCheck of_test(bad, {}, {}, pool);
  CHECK(error_of([&] { of_test.finish(never); }) == text);
  CHECK(error_of([&] { of_test.rethrow(); }) == text);
  // finish() does not wait for the validation samples, because they are evaluated next.
  {
    AheadCheck of_val(good, bad, {}, pool);
    try {
      of_val.finish(never);
    } catch (const Error& error) {
      CHECK(error.what() == text);
    }
  }
  // The destructor waited for the test sample that another thread may still have been reading.
  CHECK(test->read_so_far().size() == 2);
}

TEST_CASE("ahead check: a stop request ends the waiting, and leaving drops the rest") {
  const auto pool = std::make_shared<DecoderPool>(1);
  struct Busy final : DecoderPool::Client {
    bool work() noexcept override {
      std::this_thread::yield();
      return !may_end;
    }
    std::atomic<bool> may_end{false};
  } busy;
  pool->add(busy);
  const auto test = std::make_shared<NotedSource>(std::set<std::int64_t>{});
  const Split split{test, {0, 1}};
  {
    AheadCheck check(split, {}, {}, pool);
    check.finish([] { return true; });
  }
  // The only thread always had other work.
  CHECK(test->read_so_far().empty());
  busy.may_end = true;
  pool->remove(busy);
}

}  // namespace
}  // namespace dpt
