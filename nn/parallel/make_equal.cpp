// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/make_equal.h>

#include <cstring>
#include <vector>

namespace peal::nn {
namespace {

// What a list of tensors may take as one message, beside its own memory.
constexpr std::size_t together = std::size_t{16} << 20;

// Which tensors are not rank 0's everywhere.
std::vector<bool> differing(const comm::ProcessGroup& group, const NamedTensors& tensors) {
  std::vector<std::uint64_t> mine;
  for (const auto& [name, tensor] : tensors) {
    const auto own = digest_of(tensor);
    mine.insert(mine.end(), own.begin(), own.end());
  }
  const auto size = static_cast<std::int64_t>(mine.size());
  const Tensor first = Tensor::empty({size}, DType::i64, Device{});
  std::memcpy(first.raw(), mine.data(), first.view().bytes());
  group.broadcast(first, 0, "digests of a model that is being wrapped").wait();
  std::vector<bool> differs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    differs.push_back(
        std::memcmp(first.data<std::int64_t>() + 2 * i, &mine[2 * i], 2 * sizeof mine[0]) != 0);
  }
  return any_rank(group, differs, "what differs in a model that is being wrapped");
}

}  // namespace

std::array<std::uint64_t, 2> digest_of(const Tensor& tensor) {
  const Tensor here = tensor.detach().to(Device{});
  return comm::digest({static_cast<const char*>(here.raw()), here.view().bytes()});
}

std::string digest_line(std::string_view name, const Tensor& tensor) {
  const auto [one, other] = digest_of(tensor);
  return concat("\n", name, " of digest ", one, " ", other);
}

void make_values(const comm::ProcessGroup& group, const NamedTensors& tensors,
                 std::string_view who) {
  std::string_view name;
  try {
    for (const auto& each : tensors) {
      name = each.first;
      materialize(each.second);
    }
  } catch (...) {
    rethrow_everywhere(group, concat(name, ", which was made empty, cannot get its values"), who);
  }
}

void make_equal(const comm::ProcessGroup& group, const NamedTensors& tensors) {
  make_values(group, tensors, "model");
  if (group.world() == 1 || tensors.empty()) return;
  const std::vector<bool> differs = differing(group, tensors);
  std::vector<View> list;
  std::size_t bytes = 0;
  const auto send = [&] {
    const comm::Label label("a model that is being wrapped");
    if (list.size() == 1) group.broadcast(list[0], 0, label).wait();
    if (list.size() > 1) group.broadcast_coalesced(list, 0, label).wait();
    list.clear();
    bytes = 0;
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!differs[i]) continue;
    const View view = tensors[i].second.view();
    if (bytes + view.bytes() > together) send();
    list.push_back(view);
    bytes += view.bytes();
  }
  send();
}

}  // namespace peal::nn
