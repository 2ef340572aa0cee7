// SPDX-License-Identifier: Apache-2.0
// Where an execution's buffers lie, and what happens to them before and after the rounds.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/engine/execution.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/reduce/table.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

namespace peal::comm {
namespace {

// Memory that a library or a device may still write, after a failure. Never freed.
void quarantine(std::vector<StorageRef> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<StorageRef>;
  std::lock_guard lock(mutex);
  std::move(memory.begin(), memory.end(), std::back_inserter(kept));
}

bool elsewhere(const View& view, Device place) {
  return view.storage && view.device().type != place.type;
}

StorageRef pinned(std::size_t bytes) {
  return Tensor::pinned({static_cast<std::int64_t>(bytes)}, DType::u8).storage();
}

// The call's buffers overlap: in == out + this many elements.
std::optional<std::int64_t> in_place(const Call& call) {
  const View &in = call.in, &out = call.out;
  if (in.storage == nullptr || in.storage != out.storage) return std::nullopt;
  if (in.at >= out.at + out.count || out.at >= in.at + in.count) return std::nullopt;
  return in.at - out.at;
}

}  // namespace

Execution::~Execution() {
  const bool held = ticket_ && !transport_.cancel(*ticket_);
  const bool works = started_ && !done_ && !captured_ && !quiet();
  if (held || works) {
    std::vector<StorageRef> memory = {call_.in.storage, call_.out.storage, wide_in_,   wide_out_,
                                      scratch_,         arrivals_,         staged_in_, staged_out_};
    for (const Piece& piece : call_.gathered) memory.push_back(piece.data.storage);
    for (const Piece& piece : call_.scattered) memory.push_back(piece.data.storage);
    quarantine(std::move(memory));
  }
}

// No device works on its buffers. One that cannot be asked any more may.
bool Execution::quiet() const {
  if (!staging_ && !on_device()) return true;
  try {
    if (on_device()) return transport_.queue()->stream().query();
    return staging_->quiet();
  } catch (const Error&) {
    return false;
  }
}

StorageRef Execution::fresh(std::int64_t elements) const {
  return Storage::allocate(static_cast<std::size_t>(elements) * element_, place_);
}

void Execution::move(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (to != from && bytes != 0) memory_space(place_).copy(to, place_, from, place_, bytes, false);
}

std::byte* Execution::at(const Span& span) const {
  if (span.count == 0) return nullptr;  // of a buffer that may not be there
  std::byte* base = span.buffer == Buffer::in    ? in_
                    : span.buffer == Buffer::out ? out_
                                                 : scratch_->data();
  return base + span.at * static_cast<std::int64_t>(element_);
}

// A broadcast reads the root's input alone, and in place it leaves that as it is.
bool Execution::reads_in() const {
  const bool broadcast = !call_.point_to_point() && call_.what == Collective::broadcast;
  return !broadcast || transport_.rank() == call_.root;
}
bool Execution::writes_out() const {
  const bool broadcast = !call_.point_to_point() && call_.what == Collective::broadcast;
  return !broadcast || transport_.rank() != call_.root || !in_place(call_);
}

// Gives `in` and `out` memory of the CPU where they lie on a device, and starts the copies.
void Execution::stage() {
  const std::size_t size = size_of(call_.dtype());
  const auto offset = in_place(call_);
  const bool in_away = elsewhere(call_.in, place_), out_away = elsewhere(call_.out, place_);
  if (offset && in_away) {  // one piece of memory for both
    const std::int64_t begin = std::min(call_.in.at, call_.out.at);
    const std::int64_t end = std::max(call_.in.at + call_.in.count, call_.out.at + call_.out.count);
    staged_in_ = pinned(static_cast<std::size_t>(end - begin) * size);
    own_in_ = staged_in_->data() + static_cast<std::size_t>(call_.in.at - begin) * size;
    own_out_ = staged_in_->data() + static_cast<std::size_t>(call_.out.at - begin) * size;
  } else {
    if (in_away) own_in_ = (staged_in_ = pinned(call_.in.bytes()))->data();
    if (out_away) own_out_ = (staged_out_ = pinned(call_.out.bytes()))->data();
  }
  const auto cut = [&](Buffer buffer, std::int64_t count) {
    if (!plan_) return std::vector<Segment>{{{0, count}, 0, 0}};
    const auto elements = static_cast<std::int64_t>(std::max<std::size_t>(segment_ / size, 1));
    return segments(plan_->program, buffer, count, elements, offset);
  };
  if (in_away && call_.in.count > 0 && reads_in()) {
    for (const Segment& segment : cut(Buffer::in, call_.in.count)) {
      down_.push_back({segment.block, segment.first});
    }
    std::stable_sort(down_.begin(), down_.end(),
                     [](const Copied& a, const Copied& b) { return a.round < b.round; });
    for (Copied& part : down_) {
      staging_->down(own_in_ + static_cast<std::size_t>(part.block.at) * size,
                     call_.in.part(part.block.at, part.block.count));
      part.mark = staging_->mark();
    }
  }
  if (out_away && call_.out.count > 0 && writes_out()) {
    for (const Segment& segment : cut(Buffer::out, call_.out.count)) {
      up_.push_back({segment.block, segment.last});
    }
    std::stable_sort(up_.begin(), up_.end(),
                     [](const Copied& a, const Copied& b) { return a.round < b.round; });
  }
}

void Execution::prepare() {
  started_ = true;
  own_in_ = elsewhere(call_.in, place_) ? nullptr : call_.in.data();
  own_out_ = elsewhere(call_.out, place_) ? nullptr : call_.out.data();
  if (on_device()) caller_.enter(transport_.queue()->stream());
  if (staging_) stage();
  bool pieces_away = false;
  for (const Piece& piece : call_.gathered) {
    if (!reads_in()) break;
    const View here = call_.in.part(piece.at, piece.data.count);
    if (elsewhere(piece.data, place_)) {
      staging_->down(here.data(), piece.data);
      pieces_away = true;
    } else {
      move(here.data(), piece.data.data(), piece.data.bytes());
    }
  }
  if (pieces_away) down_.push_back({{0, call_.in.count}, 0, staging_->mark()});

  in_ = own_in_;
  out_ = own_out_;
  const bool scales = call_.op == ReduceOp::premul_sum && !scaled_;
  if (dtype_ != call_.dtype()) {  // out of place from here on: wide memory of their own
    wide_in_ = fresh(call_.in.count);
    wide_out_ = fresh(call_.out.count);
    in_ = wide_in_->data();
    out_ = wide_out_->data();
  } else if (scales && in_ != out_ && staged_in_ == nullptr) {  // never write the user's input
    wide_in_ = fresh(call_.in.count);
    in_ = wide_in_->data();
  }
  if (plan_) {
    const std::int64_t scratch = plan_->program.scratch;
    if (scratch > 0) scratch_ = fresh(scratch);
    if (plan_->arriving > 0) arrivals_ = fresh(plan_->arriving);
  }
  if (down_.empty()) widen({0, call_.in.count});
}

// A part of the call's input is there.
void Execution::widen(const Block& block) {
  if (block.count == 0) return;
  const auto first = static_cast<std::size_t>(block.at);
  const std::byte* own = own_in_ + first * size_of(call_.dtype());
  std::byte* wire = in_ + first * element_;
  if (dtype_ != call_.dtype()) {
    wire_kernels(place_).widen(call_.dtype(), reinterpret_cast<float*>(wire), own, block.count);
  } else {
    move(wire, own, static_cast<std::size_t>(block.count) * element_);
  }
  if (call_.op == ReduceOp::premul_sum && !scaled_) {
    wire_kernels(place_).scale(dtype_, wire, call_.factor, block.count);
  }
}

// A part of the output has its last value on the wire.
void Execution::finish(const Block& block) {
  if (block.count == 0) return;
  const auto first = static_cast<std::size_t>(block.at);
  std::byte* wire = out_ + first * element_;
  std::byte* own = own_out_ + first * size_of(call_.dtype());
  if (call_.op == ReduceOp::avg && call_.reduces() && !scaled_) {
    wire_kernels(place_).divide(dtype_, wire, transport_.world(), block.count);
  }
  if (dtype_ != call_.dtype()) {
    wire_kernels(place_).narrow(call_.dtype(), own, reinterpret_cast<const float*>(wire),
                                block.count);
  }
}

// True where all that the round touches is there.
bool Execution::arrived(std::size_t round) {
  for (; taken_ < down_.size() && down_[taken_].round <= round; ++taken_) {
    if (!staging_->arrived(down_[taken_].mark)) return false;
    widen(down_[taken_].block);
  }
  return true;
}

// Sends on its way what the round was the last to touch. Only once all of the input has come: the
// two may be one memory.
void Execution::hand_back(std::size_t round) {
  if (taken_ < down_.size()) return;
  for (; given_ < up_.size() && up_[given_].round <= round; ++given_) {
    const Block& block = up_[given_].block;
    finish(block);
    staging_->up(call_.out.part(block.at, block.count),
                 own_out_ + static_cast<std::size_t>(block.at) * size_of(call_.dtype()));
  }
}

void Execution::conclude() {
  if (up_.empty()) {
    finish({0, call_.out.count});
  } else {
    hand_back(up_.back().round);
  }
  for (const Piece& piece : call_.scattered) {
    if (!writes_out()) break;
    const View here = call_.out.part(piece.at, piece.data.count);
    if (elsewhere(piece.data, place_)) {
      staging_->up(piece.data, here.data());
    } else {
      move(piece.data.data(), here.data(), piece.data.bytes());
    }
    if (piece.data.storage) piece.data.storage->bump_version();
  }
  if (call_.out.storage && writes_out()) call_.out.storage->bump_version();
  if (staging_) staging_->close(caller_);
  if (on_device()) caller_.leave(transport_.queue()->stream());
  handed_over_ = true;
}

// Its memory is the caller's again.
void Execution::end() {
  wide_in_ = wide_out_ = scratch_ = arrivals_ = staged_in_ = staged_out_ = nullptr;
  if (recorder_) recorder_->end(number_);
  done_ = true;
}

}  // namespace peal::comm
