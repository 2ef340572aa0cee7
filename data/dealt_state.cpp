// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/dealt_state.h>

#include <algorithm>

namespace peal::data {
namespace {

constexpr std::int64_t without_drop = 4, columns = 5;  // states were [n, 4] before

}  // namespace

Tensor tensor_of(const std::vector<Dealt>& dealt) {
  std::vector<std::int64_t> words;
  for (const Dealt& each : dealt) {
    words.insert(words.end(), {static_cast<std::int64_t>(each.way), each.batch_size, each.world,
                               each.batches, each.drop});
  }
  return Tensor::from(words, {std::ssize(dealt), columns}, Device{});
}

TakenUp read_dealt(StateReader& reader, const NamedTensors& state, Dealt now, std::int64_t samples,
                   const HowOrdered& mine) {
  const auto found = std::find_if(state.begin(), state.end(),
                                  [](const auto& entry) { return entry.first == "dealt"; });
  const bool table = found != state.end() && found->second.dim() == 2;
  const std::int64_t wide = table && found->second.size(1) == without_drop ? without_drop : columns;
  const Tensor rows = reader.tensor("dealt", {table ? found->second.size(0) : 1, wide}, DType::i64);
  TakenUp taken;
  if (rows.defined()) {
    const auto words = rows.to_vector<std::int64_t>();
    for (std::size_t at = 0; at < words.size(); at += static_cast<std::size_t>(wide)) {
      if (words[at] <= 0 || words[at] > static_cast<std::int64_t>(Way::dispatched)) {
        reader.fault(concat("dealt: there is no way ", words[at]));
      }
      taken.before.push_back({static_cast<Way>(words[at]), words[at + 1],
                              static_cast<int>(words[at + 2]), words[at + 3],
                              wide == columns && words[at + 4] != 0});
    }
  }
  const bool within = std::any_of(taken.before.begin(), taken.before.end(),
                                  [](const Dealt& each) { return each.batches > 0; });
  taken.seed = check_order(reader, mine, within);
  reader.finish();
  if (taken.before.empty()) return taken;
  now.batches = taken.before.back().batches;
  if (taken.before.back() == now) {
    taken.before.pop_back();
    taken.batches = now.batches;
  }
  left(samples, taken.before);  // is there such an epoch?
  return taken;
}

}  // namespace peal::data
