// SPDX-License-Identifier: Apache-2.0
// Buffers: the memory of one operation, and the answer to all that its rounds ask: where is this
// span? The program's buffers lie where the transport moves messages, and have the wire's type.
// What the caller gave may lie on another device, in pieces, or have another type. So, on the way
// in and out:
//
//   gathered  pieces are copied into one buffer, and out of it again (coalesced collectives);
//   staged    tensors on a device, over a transport of the CPU, are copied to page-locked memory
//             and back, segment by segment, beside the rounds (segments.h);
//   widened   f16 and bf16 are reduced in f32, and narrowed at the end, so that a sum is rounded
//             once; a device's native collectives do as the library below does;
//   scaled    premul_sum multiplies what goes in, avg divides what comes out, exactly once.
//
// Where all sums are made at once (Plan::at_once), on the CPU, that needs neither wide memory nor a
// pass for the division: the combination widens, divides and rounds in registers.
//
// A span that ranks share lies in the group's window (window.h), and is an Error where that does
// not reach it. The caller's input is never written. Thread safety: one thread at a time (the
// engine's lock).
#pragma once

#include <peal/comm/engine/call.h>
#include <peal/comm/engine/spans.h>
#include <peal/comm/engine/staging.h>
#include <peal/comm/schedule/segments.h>
#include <peal/comm/transport/transport.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace peal::comm {

struct Plan;

class Buffers {
 public:
  // Of a collective; `plan` is null for the transport's native one. `segment`: bytes that are
  // copied at a time. REQUIRES: the call, the plan and the transport outlive it.
  Buffers(const CollectiveCall& call, const Plan* plan, Transport& transport, CopyStreams& copies,
          std::size_t segment, Window* window);
  Buffers(const MessageCall& call, const Plan* plan, Transport& transport, CopyStreams& copies,
          std::size_t segment, Window* window);
  // A replay has none.
  Buffers(const ReplayCall& call, const Plan* plan, Transport& transport, CopyStreams& copies,
          std::size_t segment, Window* window);
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // The operation comes after what the calling thread's streams hold of it now. Once, before
  // open().
  void follow(CallerOrder& caller);
  // All that the caller gave lies where the program runs.
  bool all_there() const;
  // Gives the program its memory, and starts the copies of what lies elsewhere.
  void open();

  const Spans& spans() const { return spans_; }
  std::byte* at(const Span& span) const { return spans_.at(span); }
  // The whole of one.
  std::byte* whole(Buffer buffer) const { return spans_.whole(buffer); }
  // Where what comes to be reduced in one round arrives (Plan::arriving).
  std::byte* arrivals() const { return arrivals_ ? arrivals_->data() : nullptr; }
  // Copies within the place where the program runs.
  void move(std::byte* to, const std::byte* from, std::size_t bytes) const;

  // Stores had better go round the caches.
  bool streams() const { return streams_; }
  // Of the wire: f32 where f16 or bf16 is reduced, but at once.
  DType dtype() const { return wire_; }
  // Combinations divide their sums by it.
  std::int64_t divisor() const { return divisor_; }
  std::size_t bytes(std::int64_t elements) const { return spans_.bytes(elements); }

  // True where all that the round touches has come.
  bool arrived(std::size_t round);
  bool stages() const { return staging_ != nullptr; }
  bool all_arrived() const { return taken_ == down_.size(); }
  std::size_t parts_arrived() const { return taken_; }
  // Sends on its way what the round was the last to touch.
  void hand_back(std::size_t round);
  // After the last round: what is left of the result goes to the caller, and the operation ends
  // with that.
  void close(CallerOrder& caller);

  // No device works on it. One that cannot be asked any more may.
  bool quiet() const;
  // Its memory, the caller's too, is never freed: a library or a device may still write it.
  void quarantine() const;
  // Its own memory is given back.
  void release();

 private:
  // One of the caller's two buffers.
  struct Side {
    const View& given;
    std::byte* own = nullptr;     // in the call's type: the caller's memory, or where it is staged
    StorageRef staged{}, wide{};  // null where it is neither
  };
  // A part of a buffer that is copied, and the round that it waits for or is waited for by.
  struct Copied {
    Block block;  // elements
    std::size_t round;
    std::size_t mark = 0;  // of Staging, for copies down
  };

  bool elsewhere(const View& view) const;
  bool on_device() const { return place_.type != DeviceType::cpu; }
  StorageRef fresh(std::int64_t elements) const;
  void stage();
  void gather();
  void scatter();
  void widen(const Block& block);
  void finish(const Block& block);

  // What calls share: two buffers, of which a message has one, and their types.
  Buffers(const View& in, const View& out, DType given, DType wire, const Plan* plan,
          Transport& transport, CopyStreams& copies, std::size_t segment, Window* window);

  Transport& transport_;
  const Plan* plan_;
  Device place_;        // where the program runs, and messages lie
  DType given_, wire_;  // types: the call's, the wire's
  Spans spans_;         // the program's buffers
  double factor_ = 1;
  std::int64_t divisor_ = 1;
  bool multiplies_ = false, divides_ = false;  // here, and not in the library below
  bool reads_in_ = true, writes_out_ = true, broadcasts_ = false;
  Side in_, out_;
  std::span<const Piece> gathered_, scattered_;
  int beside_;  // ranks that do the same in the same memory
  bool streams_ = false;
  StorageRef scratch_, arrivals_;
  CopyStreams& copies_;
  std::size_t segment_;
  std::unique_ptr<Staging> staging_;  // null where nothing lies elsewhere
  std::vector<Copied> down_, up_;     // in the order of rounds
  std::size_t taken_ = 0, given_back_ = 0;
};

}  // namespace peal::comm
