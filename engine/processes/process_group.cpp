#include "engine/processes/process_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/collectives/tcp_links.h"
#include "engine/config/secrets.h"
#include "engine/processes/control_text.h"
#include "engine/processes/control_types.h"
#include "engine/processes/descriptor_limit.h"
#include "engine/processes/process_devices.h"
#include "engine/processes/stop.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"
#include "kernels/base/secret.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

using MemberJson = nlohmann::json;

// Time for a process to end by itself, so that all processes end within five seconds of a failure.
constexpr std::chrono::milliseconds kToEnd{3500};
// Maximum time to wait for a step of rank 0.
constexpr std::chrono::minutes kToEndStep{5};
// Time to wait for the report of what broke a link: the link breaks before the report arrives.
constexpr std::chrono::milliseconds kForCause{2000};

std::string member_text(const ProcessGroup::Member& member) {
  MemberJson json = {{"host", member.host},
                     {"address", member.address},
                     {"pid", member.pid},
                     {"local_rank", member.local_rank},
                     {"visible_gpus", member.visible_gpus},
                     {"devices", names_of(member.devices)}};
  return json_text(json);
}

void parse_member(const std::string& text, ProcessGroup::Member& member) {
  const MemberJson json = MemberJson::parse(text);
  member.host = json.at("host").get<std::string>();
  member.address = json.at("address").get<std::string>();
  member.pid = json.at("pid").get<int>();
  member.local_rank = json.at("local_rank").get<int>();
  member.visible_gpus = json.at("visible_gpus").get<std::string>();
  for (const MemberJson& device : json.at("devices")) {
    member.devices.push_back(parse_device(device.get<std::string>()));
  }
}

/// Returns a message if two processes of a machine share a GPU, which is slow and easily
/// overlooked; empty otherwise.
std::string problem_of_gpus(const std::vector<ProcessGroup::Member>& members) {
  for (std::size_t a = 0; a < members.size(); ++a) {
    for (std::size_t b = a + 1; b < members.size(); ++b) {
      const ProcessGroup::Member &one = members[a], &other = members[b];
      if (one.host != other.host || one.visible_gpus != other.visible_gpus) continue;
      for (const DeviceName& device : one.devices) {
        if (device.kind != DeviceName::Kind::cuda ||
            std::find(other.devices.begin(), other.devices.end(), device) == other.devices.end()) {
          continue;
        }
        return fmt::format(
            "ranks {} and {} on {} would both use {} (CUDA_VISIBLE_DEVICES {}): expected one "
            "process per GPU. Use `devices: auto`, which gives each process its part of the GPUs, "
            "start fewer processes per machine, or have the launcher give each process its own GPU",
            a, b, one.host, device.text(),
            one.visible_gpus.empty() ? "is not set" : "is " + one.visible_gpus);
      }
    }
  }
  return {};
}

/// Returns an error if this process may not open `more` descriptors, otherwise an empty string.
std::string problem_of_descriptors(const World& world, int more) {
  return make_room_for_descriptors(more, fmt::format("rank {} (host {}) of {} processes needs",
                                                     world.rank, world.host, world.size));
}

ControlOptions control_options(const ProcessGroup::Options& options) {
  ControlOptions control;
  control.run = options.run;
  control.join_timeout = options.join_timeout;
  control.warn = options.warn;
  // Only training has to poll for a stop: a signal ends any other command directly.
  control.requested_stop = [] {
    return stop_request::is_starting ? exit_code_of(requested_stop()) : 0;
  };
  return control;
}

}  // namespace

void read_said(int rank, const char* what, const std::function<void()>& read) {
  try {
    read();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::peer,
         "rank {} sent something other than the '{}' that dpt sends: expected the same version of "
         "dpt on every rank. If another program can listen on the port of rank 0, set DPT_TOKEN",
         rank, what);
  }
}

void ProcessGroup::report_failed_start(const World& world, const Options& options,
                                       const std::string& text, ErrorKind kind) {
  try {
    const auto control = ControlChannel::join(world, control_options(options));
    control->fail(text, static_cast<int>(kind));
  } catch (const Error&) {
    // Rank 0 may have failed too, or not be reachable.
  }
}

ProcessGroup::ProcessGroup(const World& world, const Options& options)
    : world_(world), options_(options) {
  const std::string problem =
      problem_of_descriptors(world, descriptors_to_run(world.rank, world.size));
  // Do not tell the others if there are too few descriptors even to join.
  if (!problem.empty() &&
      !problem_of_descriptors(world, descriptors_to_join(world.rank, world.size)).empty()) {
    throw Error(ErrorKind::device, problem);
  }
  if (!problem.empty()) {
    report_failed_start(world, options, problem, ErrorKind::device);
    throw Error(ErrorKind::device, problem);
  }
  try {
    control_ = ControlChannel::join(world, control_options(options));
  } catch (const JoinFailed& error) {
    const StopReason stop = stop_of_exit_code(error.failure().exit_code);
    if (!stop_request::is_starting || stop == StopReason::none) throw;
    // Another process was asked to stop, so this one stops too.
    request_stop(stop);
    throw StopRequested();
  }
  waiting_ = [this](const char* operation) {
    if (operation) {
      control_->begin_wait(operation);
    } else {
      control_->end_wait();
    }
  };
  control_->on_failure([this](const WorldFailure& failure) { on_failure(failure); });
}

ProcessGroup::~ProcessGroup() {
  control_.reset();  // after this, on_failure is not called
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
  if (ender_.joinable()) ender_.join();
}

std::string ProcessGroup::text_of(const WorldFailure& failure) const {
  if (!failure.is_lost) return failure.text;
  // The places in the failure's text are slightly out of date, so add this process's present place.
  const std::string here =
      heartbeats_.empty()
          ? std::string()
          : ". This process was " + control::place_text(heartbeats_.front()->text());
  const char* remedy =
      has_checkpoint_
          ? "The same command, with any number of processes, continues from the newest checkpoint"
          : "Run the same command again, with any number of processes";
  return fmt::format("{}{}. {}", failure.text, here, remedy);
}

void ProcessGroup::on_failure(const WorldFailure& failure) {
  // If another process was asked to stop while the run starts, this one stops too.
  request_stop(stop_of_exit_code(failure.exit_code));
  std::shared_ptr<WorldGroup> group;
  {
    const std::lock_guard lock(mutex_);
    group = group_.lock();
    if (links_) links_->abort(failure.text);
  }
  if (group) group->abort(0, failure.text);
  const std::lock_guard lock(mutex_);
  try {
    ender_ = std::thread([this, failure] { watch_end(failure); });
  } catch (const std::system_error&) {
    // No thread could be started: if the abort does not wake a call, the launcher must end the
    // process.
  }
}

void ProcessGroup::watch_end(const WorldFailure& failure) {
  std::unique_lock lock(mutex_);
  const auto has_ended = [this] { return has_ended_; };
  const auto beats = [this] {
    std::uint64_t sum = 0;
    for (const auto& heartbeat : heartbeats_) sum += heartbeat->beats();
    return sum;
  };
  const auto begun = std::chrono::steady_clock::now();
  std::uint64_t before = beats();
  while (!ended_.wait_for(lock, kToEnd, has_ended)) {
    // Rank 0 may be in a long step, after which it saves the state before that step.
    const std::uint64_t now = beats();
    const bool continues = is_first() && now != std::exchange(before, now) &&
                           std::chrono::steady_clock::now() - begun < kToEndStep;
    if (saving_ == 0 && !continues) break;
  }
  if (has_ended_) return;
  if (options_.end_process) {
    options_.end_process(text_of(failure), static_cast<int>(failure.kind()));
  }
}

const std::vector<ProcessGroup::Member>& ProcessGroup::introduce(
    const std::vector<DeviceName>& devices) {
  Member mine;
  mine.host = world_.host;
  mine.address = control_->local_address();
  mine.pid = static_cast<int>(getpid());
  mine.local_rank = world_.local_rank;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) mine.visible_gpus = visible;
  mine.devices = devices;
  members_.clear();
  for (const std::string& text : control_->all_gather("members", member_text(mine))) {
    const int rank = static_cast<int>(members_.size());
    read_said(rank, "members", [&] { parse_member(text, members_.emplace_back()); });
  }
  const std::string problem = problem_of_gpus(members_);
  if (!problem.empty()) throw Error(ErrorKind::usage, problem);
  return members_;
}

void ProcessGroup::compare(const Facts& facts) {
  std::vector<Facts> all;
  std::vector<std::string> hosts;
  for (const std::string& text : control_->all_gather("facts", json_text(MemberJson(facts)))) {
    const int rank = static_cast<int>(all.size());
    read_said(rank, "facts", [&] { all.push_back(MemberJson::parse(text).get<Facts>()); });
  }
  for (const Member& member : members_) hosts.push_back(member.host);
  const std::string difference = difference_of_facts(all, hosts);
  if (!difference.empty()) throw Error(ErrorKind::usage, difference);
}

void ProcessGroup::connect() {
  const auto gather = [this](const std::string& mine) {
    return control_->all_gather("addresses of links", mine);
  };
  LinkOptions links;
  links.rank = world_.rank;
  links.size = world_.size;
  links.address = members_[world_.rank].address;
  links.secret = world_.token;
  if (links.secret.empty()) {
    links.secret = share("the token of the run", is_first() ? random_text(16) : std::string());
  }
  const auto make = [&] { return make_tcp_links(links, gather); };
  auto made = std::make_unique<WatchedLinks>(make(), waiting_);
  auto beside = make();
  const std::lock_guard lock(mutex_);
  links_ = std::move(made);
  links_beside_ = std::move(beside);
}

std::string ProcessGroup::share(const std::string& what, const std::string& text) {
  return control_->all_gather(what, is_first() ? text : std::string())[0];
}

void ProcessGroup::share(std::span<std::byte> bytes, const char* what) {
  std::vector<std::span<const std::byte>> send(static_cast<std::size_t>(world_.size));
  std::vector<std::span<std::byte>> receive(static_cast<std::size_t>(world_.size));
  if (is_first()) {
    std::fill(send.begin(), send.end(), std::span<const std::byte>(bytes));
  } else {
    receive[0] = bytes;
  }
  links_->exchange(send, receive, what);
}

std::shared_ptr<WorldGroup> ProcessGroup::make_group(std::chrono::milliseconds stall_timeout) {
  std::vector<int> replicas;
  for (const Member& member : members_) replicas.push_back(static_cast<int>(member.devices.size()));
  const auto group =
      std::make_shared<WorldGroup>(replicas, *links_, links_beside_.get(), stall_timeout, waiting_);
  control_->set_stall_timeout(stall_timeout);
  // Watch the ranks instead of this thread, which waits for them or is one of them.
  control_->watch(group->heartbeats());
  {
    const std::lock_guard lock(mutex_);
    heartbeats_ = group->heartbeats();
    group_ = group;
  }
  // A failure before group_ was set found no group to abort.
  if (const auto failure = control_->failure()) group->abort(0, failure->text);
  return group;
}

void ProcessGroup::report(const std::exception& error) noexcept {
  const auto* own = dynamic_cast<const Error*>(&error);
  if (own && own->kind() == ErrorKind::peer) return;
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const ErrorKind kind = own            ? own->kind()
                         : lacks_memory ? ErrorKind::device
                                        : ErrorKind::unexpected;
  const bool stops = dynamic_cast<const StopRequested*>(&error) != nullptr;
  try {
    control_->fail(hide_secrets(error.what()),
                   stops ? exit_code_of(requested_stop()) : static_cast<int>(kind));
  } catch (...) {
    // There is no memory for a text: the others will notice that the connection ends.
  }
}

int ProcessGroup::guard(const std::function<int()>& body) {
  try {
    return body();
  } catch (const StopRequested& stop) {
    report(stop);
    throw;
  } catch (const std::exception& error) {
    // A process that is asked to stop while the run starts also stops the others.
    check_stop();
    report(error);
    const auto failure = wait_for_cause();
    if (failure && stop_of_exit_code(failure->exit_code) != StopReason::none) {
      // on_failure may not have recorded the request yet, and the exit code follows from it.
      request_stop(stop_of_exit_code(failure->exit_code));
      throw StopRequested();
    }
    if (!failure) {
      // No other process knows of this error, which is a stall among this process's replicas or a
      // broken link.
      control_->fail(hide_secrets(error.what()), static_cast<int>(ErrorKind::peer));
      throw;
    }
    if (failure->rank == world_.rank && !failure->is_lost) throw;
    throw Error(failure->kind(), text_of(*failure));
  }
}

std::optional<WorldFailure> ProcessGroup::wait_for_cause() {
  auto failure = control_->failure();
  return failure ? failure : control_->wait_for_failure(kForCause);
}

void ProcessGroup::leave() {
  control_->leave();
}

}  // namespace dpt
