// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/record/recorder.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>

namespace peal::comm {
namespace {

// 48 MiB of steps, which the system gives as they are used.
constexpr std::size_t most_steps = std::size_t{1} << 20;
constexpr std::size_t most_operations = std::size_t{1} << 16;

// The folders of those that have yet to write.
struct Folders {
  std::mutex mutex;
  std::vector<std::weak_ptr<const std::string>> known;
};
Folders& folders() {
  static Folders all;
  return all;
}

// What keeps a record one line, and an algorithm's name one word.
std::string line_of(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}
std::string word_of(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isspace(c) != 0; }, '_');
  return name.empty() ? "unnamed" : name;
}

std::string list_of(const std::vector<std::int32_t>& numbers) {
  std::string list;
  for (const std::int32_t number : numbers) list += concat(list.empty() ? "" : ",", number);
  return list.empty() ? "-" : list;
}

// All processes of one running kernel read one steady clock, unless they are in a time namespace.
std::string clock_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  char space[64] = {};
  if (readlink("/proc/self/ns/time", space, sizeof space - 1) < 0) space[0] = 0;
  return boot.empty() ? concat("process-", getpid()) : concat(boot, space);
}

}  // namespace

std::int64_t Recorder::now() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

bool Recorder::writes_to(const std::string& folder) {
  std::lock_guard lock(folders().mutex);
  std::erase_if(folders().known, [](const auto& known) { return known.expired(); });
  return std::ranges::any_of(folders().known, [&](const auto& known) {
    const auto name = known.lock();
    return name && *name == folder;
  });
}

Recorder::Recorder(const std::string& folder, int rank, int world)
    : path_(concat(folder, "/rank-", rank, ".trace")),
      rank_(rank),
      world_(world),
      most_operations_(most_operations),
      most_steps_(most_steps) {
  std::error_code ignored;  // opening the file says what is wrong
  std::filesystem::create_directories(folder, ignored);
  file_.reset(std::fopen(path_.c_str(), "w"));
  PEAL_CHECK(file_, "PEAL_TRACE: cannot write ", path_, ": ", std::strerror(errno));
  operations_.reserve(most_operations);
  times_ = std::make_unique_for_overwrite<StepTimes[]>(most_steps);
  folder_ = std::make_shared<const std::string>(folder);
  std::lock_guard lock(folders().mutex);
  folders().known.push_back(folder_);
}

Recorder::Recorder(std::size_t operations, std::size_t steps)
    : rank_(0),
      world_(0),
      recording_(true),
      most_operations_(operations),
      most_steps_(steps),
      times_(std::make_unique_for_overwrite<StepTimes[]>(steps)) {}

void Recorder::start(std::int64_t run) {
  run_ = run;
  recording_ = true;
}

void Recorder::add_group(std::uint64_t id, std::vector<int> members) {
  groups_.emplace_back(id, std::move(members));
}

std::int32_t Recorder::begin(std::uint64_t group, Channel channel, std::uint64_t purpose,
                             std::string text, std::string algorithm,
                             std::shared_ptr<const Program> program, std::size_t element) {
  if (!recording_) return nothing;
  if (operations_.size() == most_operations_) {
    ++dropped_;
    return nothing;
  }
  operations_.push_back({group, channel, purpose, std::move(text), std::move(algorithm),
                         std::move(program), element, now(), 0});
  return static_cast<std::int32_t>(operations_.size() - 1);
}

void Recorder::goes_on(std::int32_t operation, std::string algorithm,
                       std::shared_ptr<const Program> program) {
  if (!recording_ || operation == nothing) return;
  Entry& entry = operations_[static_cast<std::size_t>(operation)];
  entry.algorithm = std::move(algorithm);
  entry.program = std::move(program);
}

StepTimes* Recorder::begin_round(std::int32_t operation, std::size_t round, const Round& steps) {
  if (!recording_ || operation == nothing) return nullptr;
  if (most_steps_ - used_ < steps.size()) {
    dropped_ += steps.size();
    return nullptr;
  }
  StepTimes* const first = &times_[used_];
  const std::int64_t begin = now();
  for (const Step& step : steps) {
    times_[used_++] = {&step,    begin, begin, 0, operation, static_cast<std::int32_t>(round),
                       step.peer};
  }
  return first;
}

void Recorder::end(std::int32_t operation) {
  if (!recording_ || operation == nothing) return;
  operations_[static_cast<std::size_t>(operation)].end = now();
}

std::vector<Recorder::Ended> Recorder::ended(const Mark& since) const {
  const auto seconds = [](std::int64_t time) { return static_cast<double>(time) * 1e-9; };
  std::vector<Ended> all;
  for (std::size_t i = since.operations; i < operations_.size(); ++i) {
    const Entry& entry = operations_[i];
    const double begin = seconds(entry.begin);
    all.push_back({static_cast<std::int32_t>(i),
                   entry.purpose,
                   {.begin = begin, .first = begin, .end = seconds(entry.end)}});
  }
  std::vector<bool> begun(all.size(), false);
  for (std::size_t i = since.steps; i < used_; ++i) {
    const StepTimes& times = times_[i];
    const auto operation = static_cast<std::size_t>(times.operation);
    if (operation < since.operations || operations_[operation].end == 0) continue;
    const std::size_t at = operation - since.operations;
    CollectiveTime& time = all[at].time;
    if (!begun[at]) time.first = seconds(times.begin);
    begun[at] = true;
    time.count(*times.step, seconds(times.moves), seconds(times.end));
  }
  std::erase_if(all, [](const Ended& each) { return each.time.end == 0; });
  return all;
}

void Recorder::write() {
  recording_ = false;
  std::FILE* const file = file_.get();
  std::fprintf(file, "peal-trace 1\nrun %" PRId64 "\nrank %d of %d\nclock %s\n", run_, rank_,
               world_, clock_name().c_str());
  for (const ClockBounds& b : bounds_) {
    std::fprintf(file, "bounds %" PRId64 " %" PRId64 " %" PRId64 "\n", b.at, b.low, b.high);
  }
  for (const auto& [id, members] : groups_) {
    std::fprintf(file, "group %" PRIu64, id);
    for (const int member : members) std::fprintf(file, " %d", member);
    std::fprintf(file, "\n");
  }
  for (const Entry& entry : operations_) {
    std::fprintf(
        file, "operation %" PRIu64 " %" PRIu64 " %" PRIu64 " %zu %" PRId64 " %" PRId64 " %s %s\n",
        entry.group, entry.channel.sequence, entry.channel.signature, entry.element, entry.begin,
        entry.end, word_of(entry.algorithm).c_str(), line_of(entry.text).c_str());
  }
  for (std::size_t i = 0; i < used_; ++i) {
    const StepTimes& t = times_[i];
    const Step& s = *t.step;
    std::fprintf(file,
                 "step %d %d %s %d %" PRId64 " %s %" PRId64 " %s %" PRId64 " %" PRId64 " %" PRId64
                 " %" PRId64,
                 t.operation, t.round, std::string(name(s.kind)).c_str(), t.peer,
                 std::max(s.dst.count, s.src.count), std::string(name(s.dst.buffer)).c_str(),
                 s.dst.at, std::string(name(s.src.buffer)).c_str(), s.src.at, t.begin, t.moves,
                 t.end);
    const bool own = s.dst.owner == self && s.src.owner == self;
    own ? std::fprintf(file, "\n") : std::fprintf(file, " %d %d\n", s.dst.owner, s.src.owner);
  }
  write_notes(file);
  std::fprintf(file, "dropped %zu\nend\n", dropped_);
  // A full disk shows when what was kept back is flushed.
  const bool good = std::fflush(file) == 0 && std::ferror(file) == 0;
  const int why = errno;
  file_.reset();
  folder_.reset();
  PEAL_CHECK(good, "PEAL_TRACE: cannot write ", path_, ": ", std::strerror(why));
  if (dropped_ > 0) {
    log_warning("PEAL_TRACE: ", path_, " has the first ", used_, " steps; ", dropped_,
                " later records had no room");
  }
}

void Recorder::write_notes(std::FILE* file) const {
  for (const OpNote& op : ops_) {
    std::fprintf(file, "op %s %d %" PRId64 " %" PRId64 " %s\n",
                 op.backward ? "backward" : "forward", op.outermost ? 0 : 1, op.begin, op.end,
                 line_of(op.name).c_str());
  }
  for (const StepNote& s : steps_) {
    std::fprintf(
        file, "training %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
        s.model, s.step, s.forward, s.backward, s.visited, s.end);
  }
  for (const BucketNote& b : buckets_) {
    std::fprintf(file,
                 "bucket %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                 " %" PRId64 " %s %s %s\n",
                 b.model, b.step, b.bucket, b.bytes, b.ready, b.sent, b.over,
                 word_of(b.held_by).c_str(), list_of(b.operations).c_str(),
                 line_of(b.label).c_str());
  }
}

}  // namespace peal::comm
