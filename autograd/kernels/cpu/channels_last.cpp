// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/channels_last.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/transpose.h>

#include <algorithm>

namespace peal::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// How many channels lie together in a pixel; 0: neither that many nor one.
std::int64_t together(const memory::desc& desc) {
  const memory::dims dims = onednn_dims(desc);
  if (dims.size() != 4 || onednn_type(desc) != memory::data_type::bf16) return 0;
  const auto is = [&](Tag tag) { return desc == memory::desc(dims, memory::data_type::bf16, tag); };
  if (is(Tag::nchw)) return 1;
  if (is(Tag::nhwc)) return dims[1];
  return dims[1] % 16 == 0 && is(Tag::nChw16c) ? 16 : 0;
}

}  // namespace

bool copy_channels(const Tensor& to, const memory::desc& to_desc, const Tensor& from,
                   const memory::desc& from_desc) {
  const std::int64_t before = together(from_desc), after = together(to_desc);
  if (std::min(before, after) != 1 || before == after) return false;
  const memory::dims dims = onednn_dims(to_desc);
  const std::int64_t group = std::max(before, after), pixels = dims[2] * dims[3];
  // A group of channels takes the same bytes in both.
  auto* target = static_cast<std::uint16_t*>(to.raw());
  const auto* source = static_cast<const std::uint16_t*>(from.raw());
  const std::int64_t size = group * pixels, groups = dims[0] * dims[1] / group;
  parallel_for(groups, size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * size; at < end * size; at += size) {
      if (after == group) {
        transpose(target + at, group, source + at, pixels, group, pixels);
      } else {
        transpose(target + at, pixels, source + at, group, pixels, group);
      }
    }
  });
  return true;
}

}  // namespace peal::cpu
