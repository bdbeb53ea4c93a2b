// The loader. A resident source needs no thread and no copy: a batch is a window on the epoch's
// order. Otherwise decoder threads fill a ring of staging buffers, in order, at most `prefetch`
// batches ahead of the one that the caller holds.
//
// Shuffling a large data set takes as long as many steps of a fast GPU. To keep the GPU busy, the
// order of an epoch is computed concurrently with the steps of the epoch before.
#include "engine/data/loader.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <limits>
#include <mutex>
#include <thread>

#include "engine/data/split.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/start_thread.h"

namespace dpt {
namespace {

/// Maximum number of samples that a decoder takes at once: few enough to spread a batch over all
/// decoders, enough to avoid contention for the lock if a sample is only copied.
constexpr std::int64_t kMaxSamplesTaken = 8;

/// Minimum number of samples for which computing an epoch's order takes longer than starting a
/// thread for it.
constexpr std::int64_t kSamplesWorthAThread = 4096;

bool is_in(const Range& range, std::int64_t position) {
  return range.begin <= position && position < range.end;
}

/// Samples of an epoch, in its order.
struct Order {
  std::int64_t epoch = -1;
  EpochOrder samples;
  std::vector<std::int32_t> slots;  ///< resident: the samples' indices; otherwise empty
};

/// One batch in the ring.
struct Staging {
  std::vector<std::byte> pixels;
  std::vector<std::int32_t> labels;
  std::vector<float> targets;
  std::int64_t unread = 0;  ///< samples not yet decoded
  std::exception_ptr error;
  std::int64_t error_position = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

struct Loader::Impl : DecoderPool::Client {
  Impl(const Split& a_split, const Options& an_options)
      : split(a_split),
        source(*a_split.source),
        options(an_options),
        sampling(a_split, an_options.sampling),
        resident(source.resident()) {
    const std::int64_t n = source.size();
    if (n > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorKind::data, "the data set has {} samples, more than the limit of {}", n,
           std::numeric_limits<std::int32_t>::max());
    }
    if (resident) return;
    sample_bytes = static_cast<std::size_t>(source.shape().elements()) * size_of(source.type());
    target_floats = static_cast<std::size_t>(source.targets().floats());
    if (!options.decoders) options.decoders = std::make_shared<DecoderPool>(1);
    options.prefetch = std::max(options.prefetch, 1);
    ring.resize(static_cast<std::size_t>(options.prefetch) + 1);
  }

  ~Impl() override {
    if (is_served) options.decoders->remove(*this);
    if (order_thread.joinable()) order_thread.join();
  }

  void start(std::int64_t epoch, std::vector<Range> new_ranges,
             std::vector<std::int64_t> new_partners);
  Order make_order(std::int64_t epoch) const;
  void make_next_order(std::int64_t epoch);
  /// Returns the number of samples read for batch `index`: those in `range`, and the partner of the
  /// first one unless it is in `range` too.
  std::int64_t samples_of(const Range& range, std::size_t index) const {
    return range.size() + (partners.empty() || is_in(range, partners[index]) ? 0 : 1);
  }
  void set_partner(const Range& range, std::size_t index, HostBatch& batch) const;
  HostBatch next_resident(const Range& range);
  HostBatch next_staged(const Range& range);
  bool work() noexcept override;

  Staging& staging(std::size_t batch) { return ring[batch % ring.size()]; }
  /// Returns the end of the batches that may be decoded now. The ring has `prefetch` buffers for
  /// them, and one for the batch that the caller holds.
  std::size_t limit() const {
    return std::min(ranges.size(), consumed + static_cast<std::size_t>(options.prefetch));
  }
  /// Prepares the buffers of batches that have entered the window.
  void open_window() {
    for (; opened < limit(); ++opened) {
      Staging& batch = staging(opened);
      batch.unread = samples_of(ranges[opened], opened);
      batch.error = nullptr;
      batch.error_position = std::numeric_limits<std::int64_t>::max();
    }
  }

  const Split& split;
  const DataSource& source;
  Options options;
  Sampling sampling;
  std::optional<ResidentSamples> resident;
  std::size_t sample_bytes = 0, target_floats = 0;  ///< sizes of a staged sample

  // The epoch, which is constant between two calls of `start`.
  Order order;
  std::vector<std::int32_t> counted;  ///< 0, 1, 2, ...: slots of staged samples
  std::vector<Range> ranges;
  std::vector<std::int64_t> partners;  ///< partner of the first sample of each range; may be empty
  std::size_t consumed = 0;            ///< number of calls of next

  // State of the decoder threads. The mutex guards the members from `done` to `heartbeat`, and
  // `consumed`.
  std::mutex mutex;
  std::condition_variable done;
  std::vector<Staging> ring;
  std::size_t opened = 0;       ///< number of batches whose buffers have been prepared
  std::size_t taken_batch = 0;  ///< batch of the next sample to decode; taken_sample: its index
  std::int64_t taken_sample = 0;
  int busy = 0;                          ///< number of decoders that work on a chunk
  std::shared_ptr<Heartbeat> heartbeat;  ///< heartbeat of the replica for which decoders work
  bool is_served = false;  ///< true once the decoders know this client; used by the caller only

  std::future<Order> next_order;  ///< order of the next epoch, if it is being computed
  std::thread order_thread;       ///< computes next_order
};

Order Loader::Impl::make_order(std::int64_t epoch) const {
  Order made{epoch, sampling.epoch(epoch), {}};
  const std::vector<std::int64_t>& indices = made.samples.indices;
  if (resident) made.slots.assign(indices.begin(), indices.end());
  return made;
}

void Loader::Impl::make_next_order(std::int64_t epoch) {
  // The previous thread has ended or is about to, because its order was taken.
  if (order_thread.joinable()) order_thread.join();
  auto task =
      std::make_shared<std::packaged_task<Order()>>([this, epoch] { return make_order(epoch); });
  next_order = task->get_future();
  order_thread = start_thread("the order of the next epoch", [task] { (*task)(); });
}

void Loader::Impl::start(std::int64_t epoch, std::vector<Range> new_ranges,
                         std::vector<std::int64_t> new_partners) {
  if (!resident) {
    // No decoder may write to the ring while it is rebuilt. Decoders find no more work, so this
    // waits only for chunks in progress.
    std::unique_lock lock(mutex);
    taken_batch = opened;
    done.wait(lock, [this] { return busy == 0; });
    opened = taken_batch = 0;
    taken_sample = 0;
    consumed = 0;
    ranges.clear();
  }
  partners = std::move(new_partners);
  if (order.epoch != epoch && next_order.valid()) order = next_order.get();
  if (order.epoch != epoch) order = make_order(epoch);
  if (options.sampling.shuffle && split.size() >= kSamplesWorthAThread && !next_order.valid()) {
    make_next_order(epoch + 1);
  }
  consumed = 0;
  if (resident) {
    ranges = std::move(new_ranges);
    return;
  }
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < new_ranges.size(); ++i) {
    largest = std::max(largest, samples_of(new_ranges[i], i));
  }
  while (static_cast<std::int64_t>(counted.size()) < largest) {
    counted.push_back(static_cast<std::int32_t>(counted.size()));
  }
  for (std::size_t i = 0; i < std::min(ring.size(), new_ranges.size()); ++i) {
    Staging& batch = ring[i];
    batch.pixels.resize(
        std::max(batch.pixels.size(), static_cast<std::size_t>(largest) * sample_bytes));
    batch.labels.resize(counted.size());
    batch.targets.resize(counted.size() * target_floats);
  }
  {
    const std::lock_guard lock(mutex);
    ranges = std::move(new_ranges);
    heartbeat = heartbeat_of_thread();
    open_window();
  }
  if (is_served) {
    options.decoders->wake();
  } else {
    options.decoders->add(*this);
    is_served = true;
  }
}

bool Loader::Impl::work() noexcept {
  std::unique_lock lock(mutex);
  while (taken_batch < opened && taken_sample == samples_of(ranges[taken_batch], taken_batch)) {
    ++taken_batch;
    taken_sample = 0;
  }
  if (taken_batch == opened) return false;
  const Range range = ranges[taken_batch];
  const std::size_t index = taken_batch;
  Staging& batch = staging(index);
  const std::int64_t samples = samples_of(range, index);
  const std::int64_t share = samples / (2 * std::int64_t{options.decoders->threads()});
  const std::int64_t count =
      std::min(std::clamp<std::int64_t>(share, 1, kMaxSamplesTaken), samples - taken_sample);
  const std::int64_t begin = taken_sample;
  taken_sample += count;
  ++busy;
  set_heartbeat_of_thread(heartbeat);
  lock.unlock();
  std::exception_ptr error;
  std::int64_t k = begin;
  try {
    for (; k < begin + count; ++k) {
      beat("reading samples");
      const auto at = static_cast<std::size_t>(k);
      const auto position =
          static_cast<std::size_t>(k < range.size() ? range.begin + k : partners[index]);
      const std::int64_t id = order.samples.indices[position];
      source.read_in_epoch({order.epoch, id, order.samples.draw_keys()[position]},
                           std::span(batch.pixels).subspan(at * sample_bytes, sample_bytes),
                           batch.labels[at]);
      if (target_floats == 0) continue;
      source.read_targets(id, std::span(batch.targets).subspan(at * target_floats, target_floats));
    }
  } catch (...) {
    error = std::current_exception();
  }
  set_heartbeat_of_thread(nullptr);
  lock.lock();
  --busy;
  if (error && k < batch.error_position) {
    batch.error = error;
    batch.error_position = k;
  }
  batch.unread -= count;
  if (batch.unread == 0 || busy == 0) done.notify_all();
  return true;
}

void Loader::Impl::set_partner(const Range& range, std::size_t index, HostBatch& batch) const {
  if (partners.empty()) return;
  const auto partner = static_cast<std::size_t>(partners[index]);
  batch.partner_id = order.samples.draw_keys()[partner];
  if (resident) {
    batch.partner_slot = order.slots[partner];
  } else {
    batch.partner_slot = static_cast<std::int32_t>(
        is_in(range, partners[index]) ? partners[index] - range.begin : range.size());
  }
}

HostBatch Loader::Impl::next_resident(const Range& range) {
  const auto begin = static_cast<std::size_t>(range.begin);
  const auto count = static_cast<std::size_t>(range.size());
  HostBatch batch;
  batch.pixels = resident->pixels;
  batch.labels = resident->labels;
  batch.targets = resident->targets;
  batch.slots = std::span(order.slots).subspan(begin, count);
  batch.ids = std::span(order.samples.draw_keys()).subspan(begin, count);
  set_partner(range, consumed, batch);
  ++consumed;
  return batch;
}

HostBatch Loader::Impl::next_staged(const Range& range) {
  HostBatch batch;
  std::unique_lock lock(mutex);
  // The call releases the previous batch, so the window advances by one.
  const std::size_t index = consumed;
  Staging& ready = staging(index);
  ++consumed;
  open_window();
  lock.unlock();
  options.decoders->wake();
  lock.lock();
  if (ready.unread > 0) {
    const auto from = std::chrono::steady_clock::now();
    done.wait(lock, [&] { return ready.unread == 0; });
    batch.wait_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }
  if (ready.error) std::rethrow_exception(ready.error);
  const auto count = static_cast<std::size_t>(range.size());
  const auto read = static_cast<std::size_t>(samples_of(range, index));
  batch.pixels = std::span(ready.pixels).first(read * sample_bytes);
  batch.labels = std::span(ready.labels).first(read);
  batch.targets = std::span(ready.targets).first(read * target_floats);
  batch.slots = std::span(counted).first(count);
  batch.ids =
      std::span(order.samples.draw_keys()).subspan(static_cast<std::size_t>(range.begin), count);
  set_partner(range, index, batch);
  return batch;
}

Loader::Loader(const Split& split, const Options& options)
    : impl_(std::make_unique<Impl>(split, options)) {}

Loader::~Loader() = default;

void Loader::start(std::int64_t epoch, std::vector<Range> ranges,
                   std::vector<std::int64_t> partners) {
  assert(partners.empty() || partners.size() == ranges.size());
  for ([[maybe_unused]] const Range& range : ranges) {
    assert(0 <= range.begin && range.begin <= range.end && range.end <= impl_->split.size());
  }
  impl_->start(epoch, std::move(ranges), std::move(partners));
}

HostBatch Loader::next() {
  assert(impl_->consumed < impl_->ranges.size());
  const Range range = impl_->ranges[impl_->consumed];
  return impl_->resident ? impl_->next_resident(range) : impl_->next_staged(range);
}

}  // namespace dpt
