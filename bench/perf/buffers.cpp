// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/stream.h>
#include <peal/bench/perf/buffers.h>

#include <algorithm>
#include <cstring>

namespace peal::bench {
namespace {

constexpr int untouched = 0xa5;

Tensor bytes(const comm::ProcessGroup& group, Device device, std::int64_t count, bool shared) {
  if (shared) return group.allocate({count}, DType::u8, device);
  return Tensor::zeros({count}, DType::u8, device);
}

bool on_cpu(const View& view) { return view.device().type == DeviceType::cpu; }

}  // namespace

Buffers::Buffers(const comm::ProcessGroup& group, Device device, std::int64_t most, int unaligned,
                 bool shared)
    : group_(group),
      most_(most),
      unaligned_(unaligned),
      send_(bytes(group, device, most + 8 * unaligned, shared)),
      recv_(bytes(group, device, most + 8 * unaligned, shared)) {}

std::int64_t Buffers::places(const Case& test) const {
  return test.bytes() == 0 ? 1 : std::max<std::int64_t>(1, most_ / test.bytes());
}

View Buffers::part(const Tensor& whole, const Case& test, std::int64_t at,
                   std::int64_t count) const {
  const View view = whole.view();
  const auto size = static_cast<std::int64_t>(size_of(test.dtype));
  return {view.storage, view.at / size + unaligned_ + at, count, test.dtype};
}

Place Buffers::place(const Case& test, std::int64_t number) const {
  const Layout& layout = test.layout;
  const std::int64_t at = number % places(test) * layout.whole();
  if (!test.in_place) {
    return {part(send_, test, at, layout.send), part(recv_, test, at, layout.recv)};
  }
  const std::int64_t rank = group_.rank();
  return {part(recv_, test, at + layout.send_at * rank, layout.send),
          part(recv_, test, at + layout.recv_at * rank, layout.recv)};
}

void Buffers::fill(const Case& test, const Place& place, Values& values, int filling) {
  const auto into = [&](const View& view, bool fresh) {
    if (view.count == 0) return;
    std::byte* to = view.data();
    if (!on_cpu(view)) {
      on_host_.resize(std::max(on_host_.size(), view.bytes()));
      to = on_host_.data();
    }
    if (fresh) {
      values.write(to, group_.rank(), 0, view.count, filling);
    } else {
      std::memset(to, untouched, view.bytes());
    }
    if (!on_cpu(view)) {
      memory_space(view.device()).copy(view.data(), view.device(), to, {}, view.bytes(), true);
    }
  };
  // In place what is sent may be a part of what is received, or the other way round.
  if (!test.in_place || test.layout.recv > test.layout.send) into(place.recv, false);
  into(place.send, true);
}

std::int64_t Buffers::wrong(const Case& test, const Place& place, Values& values, int filling) {
  const auto parts =
      test.operation->expected(test.layout, group_.rank(), group_.world(), test.root);
  if (parts.empty() || place.recv.count == 0) return 0;
  const std::byte* got = place.recv.data();
  if (!on_cpu(place.recv)) {
    on_host_.resize(std::max(on_host_.size(), place.recv.bytes()));
    memory_space(place.recv.device())
        .copy(on_host_.data(), {}, got, place.recv.device(), place.recv.bytes(), true);
    got = on_host_.data();
  }
  const auto size = static_cast<std::int64_t>(size_of(test.dtype));
  std::int64_t bad = 0;
  for (const Expected& part : parts) {
    bad += values.wrong(got + part.at * size, part.source, part.first, part.count, filling);
  }
  return bad;
}

}  // namespace peal::bench
