// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/stream.h>
#include <peal/bench/perf/measure.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace peal::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double reduced(const comm::ProcessGroup& group, double mine, comm::ReduceOp op) {
  const Tensor value = Tensor::scalar(mine, Device{});
  group.all_reduce(value, op).wait();
  return value.item<double>();
}

}  // namespace

double over_ranks(const comm::ProcessGroup& group, double mine, int average) {
  if (average == 0) {
    const Tensor value = Tensor::scalar(mine, Device{});
    group.broadcast(value).wait();
    return value.item<double>();
  }
  if (average == 1) return reduced(group, mine, comm::ReduceOp::sum) / group.world();
  return reduced(group, mine, average == 2 ? comm::ReduceOp::min : comm::ReduceOp::max);
}

Measurement::Measurement(const comm::ProcessGroup& group, const Options& options, Buffers& buffers,
                         const Case& test, Caller call, bool each)
    : group_(group),
      options_(options),
      buffers_(buffers),
      test_(test),
      call_(std::move(call)),
      each_(each),
      values_(test.dtype, test.op, group.world()),
      repeats_(!test.in_place || !test.operation->reduces) {
  if (options.check > 0 || options.rewrite != Rewrite::never) fill(0, 1);
}

void Measurement::sync() const { synchronize(buffers_.place(test_, 0).recv.device()); }

void Measurement::call_once(std::int64_t number) { call_(buffers_.place(test_, number)).wait(); }

void Measurement::warm_up(int calls) {
  for (int i = 0; i < calls; ++i) call_once(i);
  sync();
}

// The places of some calls, each once.
void Measurement::fill(std::int64_t first, std::int64_t calls) {
  ++filling_;
  const std::int64_t places = std::min(calls, buffers_.places(test_));
  for (std::int64_t i = 0; i < places; ++i) {
    buffers_.fill(test_, buffers_.place(test_, first + i), values_, filling_);
  }
}

void Measurement::check(std::int64_t first, std::int64_t calls) {
  const std::int64_t places = std::min(calls, buffers_.places(test_));
  for (std::int64_t i = 0; i < places; ++i) {
    wrong_ += buffers_.wrong(test_, buffers_.place(test_, first + i), values_, filling_);
  }
}

// When iterations end: on the host's clock, or where the device's queue reaches that place.
class Measurement::Marks {
 public:
  Marks(Device device, bool on) : device_(device), on_(on) { mark(); }
  void mark() {
    if (!on_) return;
    if (device_.type == DeviceType::cpu) {
      times_.push_back(Clock::now());
    } else {
      events_.emplace_back(true).record(current_stream(device_));
    }
  }
  // Seconds from mark to mark, once the device is done.
  void append(std::vector<double>& seconds, int calls) const {
    for (std::size_t i = 1; i < times_.size(); ++i) {
      const std::chrono::duration<double> spent = times_[i] - times_[i - 1];
      seconds.push_back(spent.count() / calls);
    }
    for (std::size_t i = 1; i < events_.size(); ++i) {
      seconds.push_back(events_[i].seconds_since(events_[i - 1]) / calls);
    }
  }

 private:
  Device device_;
  bool on_;
  std::vector<Clock::time_point> times_;
  std::vector<Event> events_;
};

// The calls of one iteration.
void Measurement::together(const std::vector<Place>& places, std::size_t& at) {
  const auto next = [&]() -> const Place& {
    const Place& place = places[at];
    if (++at == places.size()) at = 0;
    return place;
  };
  if (options_.together > 1 && (options_.blocking == 0 || options_.blocking == 3)) {
    const auto wait = [&] {
      for (const comm::Work& work : works_) work.wait();
      works_.clear();
    };
    for (int k = 0; k < options_.together; ++k) {
      if (works_.size() == places.size()) wait();  // no two calls at once on one place
      works_.push_back(call_(next()));
    }
    return wait();
  }
  for (int k = 0; k < options_.together; ++k) {
    call_(next()).wait();
    if (options_.blocking != 0) sync();
    if (options_.blocking == 1) group_.barrier().wait();
  }
}

// On the clock.
void Measurement::iterate(int iterations) {
  const std::int64_t calls = std::int64_t{iterations} * options_.together;
  std::vector<Place> places;
  for (std::int64_t i = 0; i < std::min(calls, buffers_.places(test_)); ++i) {
    places.push_back(buffers_.place(test_, next_ + i));
  }
  const Device device = places[0].recv.device();
  const bool apart = options_.blocking == 3;  // each iteration after a barrier of its own
  std::size_t at = 0;
  group_.barrier().wait();
  for (int i = 0; i < (apart ? iterations : 1); ++i) {
    Marks marks(device, each_);
    const auto start = Clock::now();
    for (int k = 0; k < (apart ? 1 : iterations); ++k) {
      together(places, at);
      marks.mark();
    }
    cpu_seconds_ += since(start);
    sync();
    seconds_ += since(start);
    marks.append(iterations_, options_.together);
    if (apart) group_.barrier().wait();
  }
}

void Measurement::run(int iterations) {
  const std::int64_t places = buffers_.places(test_);
  const bool fresh = options_.rewrite != Rewrite::never;
  if (!fresh && options_.check > 0) fill(0, places);
  while (iterations > 0) {
    // As many as find fresh places.
    int now = iterations;
    if (options_.rewrite == Rewrite::every_call) now = 1;
    if (options_.rewrite == Rewrite::when_used_up) {
      now = static_cast<int>(std::clamp<std::int64_t>(places / options_.together, 1, iterations));
    }
    const std::int64_t calls = std::int64_t{now} * options_.together;
    if (options_.rewrite == Rewrite::every_call) next_ = 0;
    if (fresh) fill(next_, calls);
    iterate(now);
    // Where several calls have been, what lies is right only if each gave the same.
    if (options_.check > 0 && (repeats_ || (fresh && calls <= places))) check(next_, calls);
    next_ += calls;
    done_ += now;
    iterations -= now;
  }
}

Result Measurement::result() {
  Result all;
  const double calls = double(done_) * options_.together;
  all.seconds = over_ranks(group_, seconds_ / calls, options_.average);
  all.cpu_seconds = over_ranks(group_, cpu_seconds_ / calls, options_.average);
  all.checked = options_.check > 0 && (!test_.in_place || test_.operation->has_in_place);
  for (int c = 0; c < options_.check; ++c) {
    fill(0, 1);
    group_.barrier().wait();
    call_once(0);
    sync();
    check(0, 1);
    if (over_ranks(group_, static_cast<double>(wrong_), 3) > 0) break;
  }
  all.wrong =
      static_cast<std::int64_t>(reduced(group_, static_cast<double>(wrong_), comm::ReduceOp::sum));
  all.bad_ranks = static_cast<int>(reduced(group_, wrong_ > 0 ? 1 : 0, comm::ReduceOp::sum));
  if (!each_) return all;
  const auto count = static_cast<std::int64_t>(iterations_.size());
  const Tensor mine = Tensor::from(iterations_, {count}, Device{});
  const Tensor theirs = Tensor::empty({count * group_.world()}, DType::f64, Device{});
  group_.all_gather(theirs, mine).wait();
  all.iterations.assign(iterations_.size(), 0);
  for (int r = 0; r < group_.world(); ++r) {
    const double* row = theirs.data<double>() + r * count;
    all.by_rank.emplace_back(row, row + count);
    for (std::size_t i = 0; i < iterations_.size(); ++i) {
      all.iterations[i] = std::max(all.iterations[i], row[i]);
    }
  }
  return all;
}

}  // namespace peal::bench
