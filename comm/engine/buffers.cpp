// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/engine/buffers.h>
#include <peal/comm/reduce/table.h>
#include <peal/comm/schedule/plan.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

namespace peal::comm {
namespace {

const View nothing;

StorageRef pinned(std::size_t bytes) {
  return Tensor::pinned({static_cast<std::int64_t>(bytes)}, DType::u8).storage();
}

bool at_once(const Plan* plan, Transport& transport) {
  return plan != nullptr && plan->at_once && transport.device().type == DeviceType::cpu;
}

DType wire_of(const CollectiveCall& call, const Plan* plan, Transport& transport) {
  if (at_once(plan, transport) && !scales_widened(call)) return call.dtype();
  return native_call(call, plan ? DeviceType::cpu : transport.device().type).dtype;
}

}  // namespace

Buffers::Buffers(const View& in, const View& out, DType given, DType wire, const Plan* plan,
                 Transport& transport, CopyStreams& copies, std::size_t segment, Window* window)
    : transport_(transport),
      plan_(plan),
      place_(transport.device()),
      given_(given),
      wire_(wire),
      spans_(window, transport.rank(), size_of(wire)),
      in_{in},
      out_{out},
      beside_(window != nullptr ? window->ranks() : 1),
      copies_(copies),
      segment_(segment) {}

Buffers::Buffers(const CollectiveCall& call, const Plan* plan, Transport& transport,
                 CopyStreams& copies, std::size_t segment, Window* window)
    : Buffers(call.in, call.out, call.dtype(), wire_of(call, plan, transport), plan, transport,
              copies, segment, window) {
  gathered_ = call.gathered;
  scattered_ = call.scattered;
  factor_ = call.factor;
  multiplies_ = call.op == ReduceOp::premul_sum;
  divides_ = call.op == ReduceOp::avg && call.reduces();
  if ((multiplies_ || divides_) && !plan && transport.native() != nullptr &&
      transport.native()->scales(native_call(call, place_.type))) {
    multiplies_ = divides_ = false;
  }
  if (divides_ && at_once(plan, transport)) {
    divides_ = false;
    divisor_ = transport.world();
  }
  reads_in_ = call.reads_in(transport.rank());
  writes_out_ = call.writes_out(transport.rank());
  broadcasts_ = call.what == Collective::broadcast;
}

Buffers::Buffers(const MessageCall& call, const Plan* plan, Transport& transport,
                 CopyStreams& copies, std::size_t segment, Window* window)
    : Buffers(call.sends() ? call.data : nothing, call.sends() ? nothing : call.data,
              call.data.dtype, call.data.dtype, plan, transport, copies, segment, window) {}

Buffers::Buffers(const ReplayCall&, const Plan* plan, Transport& transport, CopyStreams& copies,
                 std::size_t segment, Window* window)
    : Buffers(nothing, nothing, nothing.dtype, nothing.dtype, plan, transport, copies, segment,
              window) {}

bool Buffers::elsewhere(const View& view) const {
  return view.storage && view.device().type != place_.type;
}

bool Buffers::all_there() const {
  const auto there = [this](const View& view) { return !view.storage || view.device() == place_; };
  return gathered_.empty() && scattered_.empty() && there(in_.given) && there(out_.given);
}

void Buffers::follow(CallerOrder& caller) {
  bool away = false;
  const auto look = [&](const View& view) {
    caller.follow(view.device());
    away = away || view.device().type != place_.type;
  };
  if (in_.given.storage) look(in_.given);
  if (out_.given.storage) look(out_.given);
  for (const Piece& piece : gathered_) look(piece.data);
  for (const Piece& piece : scattered_) look(piece.data);
  if (away) staging_ = std::make_unique<Staging>(copies_, caller);
}

StorageRef Buffers::fresh(std::int64_t elements) const {
  return Storage::allocate(bytes(elements), place_);
}

void Buffers::move(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (to != from && bytes != 0) memory_space(place_).copy(to, place_, from, place_, bytes, false);
}

void Buffers::open() {
  in_.own = elsewhere(in_.given) ? nullptr : in_.given.data();
  out_.own = elsewhere(out_.given) ? nullptr : out_.given.data();
  if (staging_) stage();
  gather();

  std::byte *in = in_.own, *out = out_.own;
  if (wire_ != given_) {  // out of place from here on: wide memory of their own
    in_.wide = fresh(in_.given.count);
    out_.wide = fresh(out_.given.count);
    in = in_.wide->data();
    out = out_.wide->data();
  } else if (multiplies_ && in != out && in_.staged == nullptr) {  // never write the user's input
    in_.wide = fresh(in_.given.count);
    in = in_.wide->data();
  }
  if (plan_ != nullptr) {
    const auto scratch_of = [&](const Plan& plan) {
      return on_device() ? plan.program.scratch : plan.scratch;
    };
    std::int64_t scratch = scratch_of(*plan_);
    if (plan_->otherwise) scratch = std::max(scratch, scratch_of(*plan_->otherwise));
    if (scratch > 0) scratch_ = fresh(scratch);
    if (plan_->arriving > 0) arrivals_ = fresh(plan_->arriving);
  }
  spans_.set(Buffer::in, in);
  spans_.set(Buffer::out, out);
  spans_.set(Buffer::scratch, scratch_ ? scratch_->data() : nullptr);
  streams_ = in != out && outgrows_caches(out_.given.bytes(), beside_);
  if (down_.empty()) widen({0, in_.given.count});
}

// Gives `in` and `out` memory of the CPU where they lie on a device, and starts the copies.
void Buffers::stage() {
  const View &in = in_.given, &out = out_.given;
  const std::size_t size = size_of(given_);
  const auto offset = in_place(in, out);
  const bool in_away = elsewhere(in), out_away = elsewhere(out);
  if (offset && in_away) {  // one piece of memory for both
    const std::int64_t begin = std::min(in.at, out.at);
    const std::int64_t end = std::max(in.at + in.count, out.at + out.count);
    in_.staged = pinned(static_cast<std::size_t>(end - begin) * size);
    in_.own = in_.staged->data() + static_cast<std::size_t>(in.at - begin) * size;
    out_.own = in_.staged->data() + static_cast<std::size_t>(out.at - begin) * size;
  } else {
    if (in_away) in_.own = (in_.staged = pinned(in.bytes()))->data();
    if (out_away) out_.own = (out_.staged = pinned(out.bytes()))->data();
  }
  const auto cut = [&](Buffer buffer, std::int64_t count) {
    if (plan_ == nullptr) return std::vector<Segment>{{{0, count}, 0, 0}};
    const auto elements = static_cast<std::int64_t>(std::max<std::size_t>(segment_ / size, 1));
    std::vector<Segment> all = segments(plan_->program, buffer, count, elements, offset);
    if (plan_->otherwise) {  // whose rounds are others
      for (Segment& each : all) each.last = std::numeric_limits<std::size_t>::max();
    }
    return all;
  };
  const auto by_round = [](std::vector<Copied>& parts) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Copied& a, const Copied& b) { return a.round < b.round; });
  };
  if (in_away && in.count > 0 && reads_in_) {
    for (const Segment& segment : cut(Buffer::in, in.count)) {
      down_.push_back({segment.block, segment.first});
    }
    by_round(down_);
    for (Copied& part : down_) {
      staging_->down(in_.own + static_cast<std::size_t>(part.block.at) * size,
                     in.part(part.block.at, part.block.count));
      part.mark = staging_->mark();
    }
  }
  if (out_away && out.count > 0 && writes_out_) {
    for (const Segment& segment : cut(Buffer::out, out.count)) {
      up_.push_back({segment.block, segment.last});
    }
    by_round(up_);
  }
}

void Buffers::gather() {
  if (!reads_in_) return;
  bool any_away = false;
  for (const Piece& piece : gathered_) {
    const View here = in_.given.part(piece.at, piece.data.count);
    if (elsewhere(piece.data)) {
      staging_->down(here.data(), piece.data);
      any_away = true;
    } else {
      move(here.data(), piece.data.data(), piece.data.bytes());
    }
  }
  if (any_away) down_.push_back({{0, in_.given.count}, 0, staging_->mark()});
}

void Buffers::scatter() {
  for (const Piece& piece : scattered_) {
    count_written(piece.data.storage, writes_out_, broadcasts_);
    if (!writes_out_) continue;
    const View here = out_.given.part(piece.at, piece.data.count);
    if (elsewhere(piece.data)) {
      staging_->up(piece.data, here.data());
    } else {
      move(piece.data.data(), here.data(), piece.data.bytes());
    }
  }
}

// A part of the call's input is there.
void Buffers::widen(const Block& block) {
  if (block.count == 0) return;
  const std::byte* own = in_.own + block.at * static_cast<std::int64_t>(size_of(given_));
  std::byte* wire = spans_.at(in(block));
  if (wire_ != given_) {
    wire_kernels(place_).widen(given_, reinterpret_cast<float*>(wire), own, block.count);
  } else {
    move(wire, own, bytes(block.count));
  }
  if (multiplies_) wire_kernels(place_).scale(wire_, wire, factor_, block.count);
}

// A part of the output has its last value on the wire.
void Buffers::finish(const Block& block) {
  if (block.count == 0) return;
  std::byte* wire = spans_.at(out(block));
  std::byte* own = out_.own + block.at * static_cast<std::int64_t>(size_of(given_));
  if (divides_) wire_kernels(place_).divide(wire_, wire, transport_.world(), block.count);
  if (wire_ != given_) {
    wire_kernels(place_).narrow(given_, own, reinterpret_cast<const float*>(wire), block.count);
  }
}

bool Buffers::arrived(std::size_t round) {
  for (; taken_ < down_.size() && down_[taken_].round <= round; ++taken_) {
    if (!staging_->arrived(down_[taken_].mark)) return false;
    widen(down_[taken_].block);
  }
  return true;
}

// Only once all of the input has come: the two may be one memory.
void Buffers::hand_back(std::size_t round) {
  if (!all_arrived()) return;
  for (; given_back_ < up_.size() && up_[given_back_].round <= round; ++given_back_) {
    const Block& block = up_[given_back_].block;
    finish(block);
    staging_->up(out_.given.part(block.at, block.count),
                 out_.own + block.at * static_cast<std::int64_t>(size_of(given_)));
  }
}

void Buffers::close(CallerOrder& caller) {
  if (up_.empty()) {
    finish({0, out_.given.count});
  } else {
    hand_back(up_.back().round);
  }
  scatter();
  count_written(out_.given.storage, writes_out_, broadcasts_);
  if (staging_) staging_->close(caller);
}

bool Buffers::quiet() const {
  if (!staging_ && !on_device()) return true;
  try {
    return on_device() ? transport_.queue()->stream().query() : staging_->quiet();
  } catch (const Error&) {
    return false;
  }
}

void Buffers::quarantine() const {
  static std::mutex mutex;
  static auto& kept = *new std::vector<StorageRef>;
  const std::lock_guard lock(mutex);
  for (const Side* side : {&in_, &out_}) {
    for (const StorageRef& memory : {side->given.storage, side->wide, side->staged}) {
      kept.push_back(memory);
    }
  }
  kept.push_back(scratch_);
  kept.push_back(arrivals_);
  for (const auto& pieces : {gathered_, scattered_}) {
    for (const Piece& piece : pieces) kept.push_back(piece.data.storage);
  }
}

void Buffers::release() {
  in_.wide = in_.staged = out_.wide = out_.staged = scratch_ = arrivals_ = nullptr;
}

}  // namespace peal::comm
