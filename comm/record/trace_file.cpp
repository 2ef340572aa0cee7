// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/record/trace_file.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

namespace peal::comm {
namespace {

// The words of a line.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view word() {
    const std::string_view next = rest_.substr(0, rest_.find(' '));
    PEAL_CHECK(!next.empty(), "a word is missing");
    rest_.remove_prefix(std::min(rest_.size(), next.size() + 1));
    return next;
  }
  template <class Number>
  Number number(Number least, Number most = std::numeric_limits<Number>::max()) {
    const std::string_view text = word();
    Number value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && value >= least &&
                   value <= most,
               "expected a number of at least ", least, ", got '", text, "'");
    return value;
  }
  std::int64_t time() { return number<std::int64_t>(std::numeric_limits<std::int64_t>::min()); }
  template <class Enum, std::size_t n>
  Enum one_of(const std::array<Enum, n>& values) {
    const std::string_view text = word();
    for (const Enum value : values) {
      if (name(value) == text) return value;
    }
    fail(concat("does not know '", text, "'"));
  }
  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

constexpr std::array kinds{Kind::send,   Kind::recv,   Kind::recv_reduce, Kind::copy,
                           Kind::reduce, Kind::signal, Kind::await};
constexpr std::array buffers{Buffer::in, Buffer::out, Buffer::scratch, Buffer::room};

void read_operation(Words& words, TraceFile& file) {
  TraceFile::Operation operation{};
  operation.group = words.number<std::uint64_t>(0);
  PEAL_CHECK(file.groups.contains(operation.group), "there is no group ", operation.group);
  operation.sequence = words.number<std::uint64_t>(0);
  operation.signature = words.number<std::uint64_t>(0);
  operation.element = words.number<std::int64_t>(1, 64);
  operation.begin = words.time();
  operation.end = words.time();
  operation.algorithm = words.word();
  operation.text = words.rest();
  file.operations.push_back(std::move(operation));
}

void read_step(Words& words, TraceFile& file) {
  PEAL_CHECK(!file.operations.empty(), "a step before all operations");
  TraceFile::Step s{};
  s.operation = words.number<std::size_t>(0, file.operations.size() - 1);
  s.round = words.number<std::int64_t>(0);
  s.step.kind = words.one_of(kinds);
  const auto ranks = static_cast<int>(file.groups.at(file.operations[s.operation].group).size());
  s.step.peer = words.number<int>(nobody, ranks - 1);
  const auto count = words.number<std::int64_t>(0, std::int64_t{1} << 58);
  for (Span* span : {&s.step.dst, &s.step.src}) {
    span->buffer = words.one_of(buffers);
    span->at = words.number<std::int64_t>(0);
    span->count = count;
  }
  // As the steps are made: what a kind does not use keeps its default.
  const Kind kind = s.step.kind;
  if (kind == Kind::send || kind == Kind::signal || kind == Kind::await) s.step.dst = {};
  if (kind == Kind::recv || kind == Kind::recv_reduce || kind == Kind::signal ||
      kind == Kind::await) {
    s.step.src = {};
  }
  s.begin = words.time();
  s.moves = words.time();
  s.end = words.time();
  if (!words.empty()) {  // one touches memory of others
    s.step.dst.owner = words.number<int>(self, ranks - 1);
    s.step.src.owner = words.number<int>(self, ranks - 1);
  }
  file.steps.push_back(s);
}

void read_op(Words& words, TraceFile& file) {
  const std::string_view pass = words.word();
  PEAL_CHECK(pass == "forward" || pass == "backward", "expected forward or backward, got '", pass,
             "'");
  OpNote op{.backward = pass == "backward", .outermost = words.number<int>(0) == 0, .name = {}};
  op.begin = words.time();
  op.end = words.time();
  op.name = words.rest();
  file.ops.push_back(std::move(op));
}

void read_training(Words& words, TraceFile& file) {
  StepNote step{.model = words.number<std::uint64_t>(0), .step = words.number<std::uint64_t>(0)};
  for (std::int64_t* const time : {&step.forward, &step.backward, &step.visited, &step.end}) {
    *time = words.time();
  }
  file.training.push_back(step);
}

// Numbers below `end`.
std::vector<std::int32_t> read_list(Words& words, std::size_t end) {
  std::vector<std::int32_t> numbers;
  std::string text(words.word());
  if (text == "-") return numbers;
  std::ranges::replace(text, ',', ' ');
  for (Words each(text); !each.empty();) {
    numbers.push_back(each.number<std::int32_t>(0, static_cast<std::int32_t>(end) - 1));
  }
  return numbers;
}

void read_bucket(Words& words, TraceFile& file) {
  BucketNote bucket;
  bucket.model = words.number<std::uint64_t>(0);
  bucket.step = words.number<std::uint64_t>(0);
  bucket.bucket = words.number<std::int64_t>(0);
  bucket.bytes = words.number<std::int64_t>(0);
  for (std::int64_t* const time : {&bucket.ready, &bucket.sent, &bucket.over}) {
    *time = words.time();
  }
  bucket.held_by = words.word();
  bucket.operations = read_list(words, file.operations.size());
  bucket.label = words.rest();
  file.buckets.push_back(std::move(bucket));
}

// False at the end.
bool read_line(std::string_view line, TraceFile& file) {
  Words words(line);
  const std::string_view what = words.word();
  if (what == "end") return false;
  if (what == "step") {
    read_step(words, file);
  } else if (what == "operation") {
    read_operation(words, file);
  } else if (what == "op") {
    read_op(words, file);
  } else if (what == "training") {
    read_training(words, file);
  } else if (what == "bucket") {
    read_bucket(words, file);
  } else if (what == "group") {
    auto& members = file.groups[words.number<std::uint64_t>(0)];
    while (!words.empty()) members.push_back(words.number<int>(0, file.world - 1));
    PEAL_CHECK(std::ranges::count(members, file.rank) == 1, "a group without rank ", file.rank);
  } else if (what == "run") {
    file.run = words.time();
  } else if (what == "rank") {
    file.rank = words.number<int>(0);
    PEAL_CHECK(words.word() == "of", "expected: rank R of WORLD");
    file.world = words.number<int>(file.rank + 1, 1 << 20);
  } else if (what == "clock") {
    file.clock = words.word();
  } else if (what == "bounds") {
    const std::int64_t at = words.time(), low = words.time();
    file.bounds.push_back({at, low, words.number<std::int64_t>(low)});
  } else if (what == "dropped") {
    file.dropped = words.number<std::int64_t>(0);
  } else {
    fail(concat("does not know '", what, "'"));
  }
  return true;
}

}  // namespace

TraceFile read_trace_file(const std::string& path) {
  std::ifstream stream(path);
  PEAL_CHECK(stream.good(), "cannot read ", path,
             "; a run under PEAL_TRACE leaves a file for each rank");
  TraceFile file;
  std::string line;
  std::int64_t number = 1;
  PEAL_CHECK(std::getline(stream, line), path,
             ": is empty; its rank was killed, or still runs, and a rank writes at its end");
  PEAL_CHECK(line == "peal-trace 1", path, ": not a trace of this version of peal");
  try {
    while (std::getline(stream, line)) {
      ++number;
      if (!read_line(line, file)) return file;
    }
  } catch (const Error& error) {
    fail(concat(path, ":", number, ": ", error.what()));
  }
  fail(concat(path, ": cut short after line ", number,
              "; its rank was stopped, or the disk was full"));
}

}  // namespace peal::comm
