// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/memory/window.h>
#include <peal/comm/store/part_of_rendezvous.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace peal::comm {
namespace {

using Location = std::uint64_t;
constexpr Location out_of_reach = 0, nothing = 1;
// A segment's number, from 1, and a place in it.
constexpr int place_bits = 44;
constexpr std::uint64_t most_segments = std::uint64_t{1} << (64 - place_bits);

constexpr std::size_t room_align = 4096;

}  // namespace

// The segments that allocate() has made. Tensors outlive windows.
struct Window::Heap {
  struct Kept {
    std::byte* begin;    // of all ranks' parts
    std::size_t stride;  // of a rank's
  };
  mutable std::mutex mutex;
  std::map<std::uint64_t, Kept> segments;  // by number
  std::uint64_t last = 0;
};

// All-zero bytes, which is what fresh memory is, are lines without signals.
Window::Window(std::shared_ptr<SharedSegment> segment, int rank, int world, std::vector<int> node)
    : segment_(std::move(segment)),
      rank_(rank),
      node_(std::move(node)),
      place_(static_cast<std::size_t>(world), elsewhere),
      peers_(static_cast<std::size_t>(world)),
      rooms_(node_.size()),
      heap_(std::make_shared<Heap>()) {
  const std::size_t ranks = node_.size();
  for (std::size_t i = 0; i < ranks; ++i) place_[static_cast<std::size_t>(node_[i])] = i;
  const std::size_t own = place_[static_cast<std::size_t>(rank_)];
  Line* const lines = reinterpret_cast<Line*>(segment_->data());
  for (std::size_t i = 0; i < ranks; ++i) {
    Peer& peer = peers_[static_cast<std::size_t>(node_[i])];
    peer.room = rooms_[i].bytes;
    for (std::size_t half = 0; half < 2; ++half) {
      peer.to[half] = lines + (half * ranks + own) * ranks + i;
      peer.from[half] = lines + (half * ranks + i) * ranks + own;
    }
  }
}

Window::~Window() = default;

namespace {

std::size_t bytes_of_lines(std::size_t ranks, std::size_t line) {
  return (2 * ranks * ranks * line + room_align - 1) / room_align * room_align;
}

// One on each node, or none on any.
std::shared_ptr<SharedSegment> segment_of(Rendezvous& ranks, const std::vector<int>& node,
                                          std::size_t bytes, std::string_view what) {
  if (node.size() == static_cast<std::size_t>(ranks.world())) {
    return SharedSegment::create(ranks, bytes, what);
  }
  PartOfRendezvous part(ranks, node);
  std::shared_ptr<SharedSegment> segment;
  std::string why;
  try {
    segment = SharedSegment::create(part, bytes, what);
  } catch (const NoSharedMemory& error) {
    why = error.what();
  }
  for (const std::string& each : ranks.exchange(why)) {
    if (!each.empty()) throw NoSharedMemory(each);
  }
  return segment;
}

}  // namespace

std::unique_ptr<Window> Window::create(Rendezvous& ranks, std::vector<int> node) {
  const std::size_t bytes =
      bytes_of_lines(node.size(), sizeof(Line)) + node.size() * 2 * room_bytes;
  auto segment = segment_of(ranks, node, bytes, "shared memory for collectives");
  return std::unique_ptr<Window>(
      new Window(std::move(segment), ranks.rank(), ranks.world(), std::move(node)));
}

StorageRef Window::allocate(Rendezvous& ranks, std::size_t bytes) {
  if (segment_->one_process() && joins_all()) return nullptr;
  if (!joins_all()) agree_on_bytes(ranks, bytes, "memory for collectives");
  const std::size_t stride =
      (std::max(bytes, std::size_t{1}) + room_align - 1) / room_align * room_align;
  std::shared_ptr<SharedSegment> made =
      segment_of(ranks, node_, stride * node_.size(), "memory for collectives");
  if (segment_->one_process()) return nullptr;  // on another node it may not be so
  madvise(made->data(), made->bytes(), MADV_DONTFORK);
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(heap_->mutex);
    number = ++heap_->last;
    if (number < most_segments) heap_->segments[number] = {made->data(), stride};
  }
  std::byte* const own = made->data() + place_[static_cast<std::size_t>(rank_)] * stride;
  return Storage::wrap(own, bytes, Device{}, [heap = heap_, number, made] {
    const std::lock_guard lock(heap->mutex);
    heap->segments.erase(number);
  });
}

Location Window::locate(const std::byte* address) const {
  if (address == nullptr) return nothing;
  if (segment_->one_process()) return reinterpret_cast<Location>(address);
  const std::lock_guard lock(heap_->mutex);
  for (const auto& [number, kept] : heap_->segments) {
    const std::byte* const own = kept.begin + place_[static_cast<std::size_t>(rank_)] * kept.stride;
    if (address < own || address >= own + kept.stride) continue;
    return number << place_bits | static_cast<Location>(address - own);
  }
  return out_of_reach;
}

std::byte* Window::address(int owner, Location location) const {
  if (location == out_of_reach || location == nothing) return nullptr;
  if (segment_->one_process()) return reinterpret_cast<std::byte*>(location);
  const std::lock_guard lock(heap_->mutex);
  const auto found = heap_->segments.find(location >> place_bits);
  if (found == heap_->segments.end()) return nullptr;
  const Heap::Kept& kept = found->second;
  const auto place = static_cast<std::size_t>(location & ((Location{1} << place_bits) - 1));
  return kept.begin + place_[static_cast<std::size_t>(owner)] * kept.stride + place;
}

void Window::begin(const Plan& plan, std::size_t element, std::uint64_t signature,
                   const std::byte* in, const std::byte* out) {
  ++operation_;
  signature_ = signature;
  Peer& me = peers_[static_cast<std::size_t>(rank_)];
  me.heard_in = operation_;
  const std::size_t room = static_cast<std::size_t>(plan.program.room) * element;
  inline_ = plan.inline_room && room <= inline_bytes ? room : 0;
  further_ = inline_ > in_pair ? (inline_ - in_pair_of_more + in_further - 1) / in_further : 0;
  if (inline_ > 0) return;
  me.in = locate(in != nullptr ? in : out);
  me.out = locate(out != nullptr ? out : in);
}

void Window::signal_further(Line& line, std::uint64_t sent) const {
  for (std::size_t i = 0; i < further_; ++i) {
    line.further[i].count.store(sent, std::memory_order_release);
  }
}

void Window::tell_further(Line& line) const {
  std::memcpy(line.room, own_room_.bytes, in_pair_of_more);
  for (std::size_t i = 0, at = in_pair_of_more; i < further_; ++i, at += in_further) {
    std::memcpy(line.further[i].room, own_room_.bytes + at, in_further);
  }
}

// All are asked before any is looked at: so they are fetched together.
bool Window::further_came(const Line& line, std::uint64_t heard) const {
  bool came = true;
  for (std::size_t i = 0; i < further_; ++i) {
    came &= line.further[i].count.load(std::memory_order_acquire) > heard;
  }
  return came;
}

void Window::take_further(const Line& line, std::byte* room) const {
  std::memcpy(room, line.room, in_pair_of_more);
  for (std::size_t i = 0, at = in_pair_of_more; i < further_; ++i, at += in_further) {
    std::memcpy(room + at, line.further[i].room, in_further);
  }
}

// A rank has a segment for as long as it has a buffer there; so one number for all is there for
// all. Who has no buffer touches none.
bool Window::reaches_all() const {
  if (segment_->one_process()) return true;
  const auto one = [&](Location Peer::*which) {
    std::uint64_t number = 0;
    for (const int rank : node_) {
      const Location location = peers_[static_cast<std::size_t>(rank)].*which;
      if (location == out_of_reach) return false;
      if (location == nothing) continue;
      if (number != 0 && location >> place_bits != number) return false;
      number = location >> place_bits;
    }
    return true;
  };
  return one(&Peer::in) && one(&Peer::out);
}

std::byte* Window::reach_memory(int owner, Buffer buffer) const {
  if (!joins(owner)) return nullptr;
  if (buffer == Buffer::room) {
    std::byte* const rooms = segment_->data() + bytes_of_lines(node_.size(), sizeof(Line));
    return rooms + (place_[static_cast<std::size_t>(owner)] * 2 + half()) * room_bytes;
  }
  const Peer& peer = peers_[static_cast<std::size_t>(owner)];
  if (inline_ > 0 || peer.heard_in != operation_ || buffer == Buffer::scratch) return nullptr;
  return address(owner, buffer == Buffer::in ? peer.in : peer.out);
}

}  // namespace peal::comm
