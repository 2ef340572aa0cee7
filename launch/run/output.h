// SPDX-License-Identifier: Apache-2.0
// Output of ranks, a whole line at a time, each with the rank's tag before it (mpirun
// --tag-output). What ranks write comes through pipes and leaves in the order in which lines ended.
// Where who reads it is slow, ranks wait, and nothing else does. Thread safety: one thread.
#pragma once

#include <peal/launch/run/child.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace peal::launch {

// A stream of this process's.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  void add(std::string_view text);
  int fd() const { return fd_; }
  bool waits() const { return !text_.empty(); }
  bool full() const { return text_.size() >= most; }
  // Nobody reads it any more; what is added is gone.
  bool broken() const { return broken_; }
  // As much as has room without waiting, once poll() says that there is some.
  void write_some();
  // All of it, or as much as there is room for, once it hurries; which is asked anew when something
  // comes to be read from `wakes`.
  void flush(int wakes, const std::function<bool()>& hurries);

 private:
  static constexpr std::size_t most = 1 << 16;
  int fd_;
  bool broken_ = false;
  std::string text_;
};

// How a peal-run on another host begins a line: one that it says to this peal-run, and one that its
// ranks print, which may hold anything.
constexpr char record_mark = '\1', print_mark = '\2';

// What one rank, or an agent, writes into one of its streams. A line without an end gets one when
// the stream ends, or when it is longer than a megabyte, or two of an agent: that has cut it
// already.
class Lines {
 public:
  // After so many read_some() a pipe is empty, of whatever size, but for what came since.
  static constexpr int reads_of_a_pipe = 64;
  Lines(OpenFile pipe, std::string tag, Output& to);
  // Of an agent: lines that begin with record_mark go there, without it, and print_mark is taken
  // away.
  void set_record(std::function<void(std::string_view)> record) { record_ = std::move(record); }
  int fd() const { return pipe_.fd(); }  // below 0: it has ended
  const Output& to() const { return *to_; }
  // What is there; it doesn't wait. False where there was nothing.
  bool read_some();
  // No more comes.
  void end();

 private:
  void take(std::string_view text);
  void put(std::string_view line);

  static constexpr std::size_t longest = 1 << 20;
  OpenFile pipe_;
  std::string tag_, begun_;
  Output* to_;
  std::function<void(std::string_view)> record_;
};

}  // namespace peal::launch
