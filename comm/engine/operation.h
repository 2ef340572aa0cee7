// SPDX-License-Identifier: Apache-2.0
// Operation: one call of a group that is under way, with all that its end needs: it keeps its lane,
// and so the transports that it uses, to its own end. So whoever holds an operation may let go of
// it in any order with the group. It is *complete* when its elements are there, *retired* when
// those of all before it are too, or it failed, and *settled* when its continuations have run.
//
// Thread safety: the engine's lock, but for what is atomic, `error` once it has retired, and
// `thrown` once it threw.
#pragma once

#include <peal/comm/control/board.h>
#include <peal/comm/engine/execution.h>
#include <peal/comm/engine/pending_buffers.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

class Control;
class Lane;

struct Operation {
  using Clock = std::chrono::steady_clock;

  Operation(std::shared_ptr<Lane> lane, Call&& call, std::shared_ptr<const Plan> plan,
            Transport& transport, Channel channel, std::size_t segment, std::string_view label);

  std::shared_ptr<Lane> lane;  // first: it goes last
  Channel channel;
  // It retires in its turn among the collectives of the group. Messages do not, nor does what a
  // continuation starts: ranks come to them at different places among their calls.
  bool in_turn;
  std::uint64_t window_turn = 0;  // of those that use the group's window
  std::string label;  // what the caller says it is for: "bucket 3: fc1.weight, fc1.bias"
  Execution execution;
  PendingBuffers buffers;
  Clock::time_point first_look{};    // since when somebody has waited for it, without a break
  Clock::duration had_waited{};      // before that, by who then went on without it
  Clock::time_point next_look{};     // of who polls it
  Clock::duration next_warning{};    // once it has stalled for so long; 0: there was none
  std::atomic<bool> ordered{false};  // it has tensors on a device, and is handed over
  bool captured = false;             // it lies in a graph (captured.h)
  bool complete = false;
  std::atomic<bool> retired{false}, settled{false};
  std::exception_ptr error;   // why it failed
  std::exception_ptr thrown;  // by the first continuation that threw
  std::atomic<bool> threw{false};
  std::vector<std::function<void()>> continuations;
  std::optional<std::uint64_t> flight;  // its row in the rank's flight recorder
  std::size_t due = 0;  // continuations whose turn has come, and that have not ended
};
using OperationRef = std::shared_ptr<Operation>;

// Of a collective that was over within its call (immediate.h), for its continuations.
OperationRef operation_over(std::shared_ptr<Lane> lane, std::string_view algorithm);

// As describe(Call) of call.h: what errors call it.
std::string describe(const Operation& operation);

// What others read of it while it is pending: of this group, and for what it waits.
Row row_of(const Operation& operation, std::uint64_t group, std::string_view needs);
// Whether nothing has moved for too long. The deadline does not run while a rank of this node says
// that it works, and half of it is left for what that one does once it says so no more.
// `last_work`: when one was last seen to, of whoever asks.
bool is_overdue(Operation::Clock::duration idle, Operation::Clock::time_point now,
                std::chrono::milliseconds deadline, const Control& control,
                Operation::Clock::time_point& last_work);
// When so much time, 0 or more, has passed; where that is more than there is, at the end of it.
Operation::Clock::time_point end_after(std::chrono::milliseconds timeout);
// For messages: "0.25", and what it and the ranks of this node wait for, behind a semicolon.
std::string seconds(Operation::Clock::duration time);
std::string waits(std::string_view needs, const Control& control);
// Why it is ended: nothing has moved for as long as the deadline allows.
std::string overdue(const Operation& operation, std::string_view who,
                    std::chrono::milliseconds deadline, std::string_view needs,
                    const Control& control);

// The operation, for the others to read when it is over, or in the flight recorder (board.h), and
// that in words.
Finished finished(const Operation& operation);
Finished finished(const CollectiveCall& call, std::uint64_t signature);
std::string describe(const Finished& what, std::uint64_t sequence);
std::string describe(const FlightRow& row);
bool is_message(const FlightRow& row);

}  // namespace peal::comm
