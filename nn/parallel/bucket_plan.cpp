// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/bucket_plan.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace peal::nn {

namespace {

constexpr std::int64_t usual_bytes = std::int64_t{25} << 20;

// All parameters once: first those of `order`, then the others from the last to the first; of both,
// delayed ones after the rest.
std::vector<std::size_t> sequence_of(std::span<const ParameterSpec> parameters,
                                     std::span<const int> order) {
  std::vector<std::size_t> sequence;
  std::vector<bool> seen(parameters.size(), false);
  const auto take = [&](std::size_t i) {
    if (!seen[i]) sequence.push_back(i);
    seen[i] = true;
  };
  for (const int i : order) {
    PEAL_CHECK(i >= 0 && static_cast<std::size_t>(i) < parameters.size(),
               "bucket plan: the order has parameter ", i, ", and there are ", parameters.size());
    take(static_cast<std::size_t>(i));
  }
  for (std::size_t i = parameters.size(); i-- > 0;) take(i);
  std::stable_partition(sequence.begin(), sequence.end(),
                        [&](std::size_t i) { return !parameters[i].delayed; });
  return sequence;
}

// Closes buckets as they fill.
class Packing {
 public:
  explicit Packing(const BucketCaps& caps) : caps_(caps) {}

  // Before all add().
  void expect(const ParameterSpec& parameter) {
    to_come_[{key_of(parameter), parameter.delayed}] += bytes_of(parameter);
  }
  void add(std::size_t i, const ParameterSpec& parameter) {
    const auto size = static_cast<std::int64_t>(size_of(parameter.dtype));
    const Key key = key_of(parameter);
    Bucket& bucket = open_[key];
    bucket.dtype = parameter.dtype;
    bucket.part = parameter.part;
    bucket.owner = parameter.owner;
    const std::int64_t line = 64 / size;
    const std::int64_t at = (bucket.count + line - 1) / line * line;
    bucket.entries.push_back({static_cast<int>(i), at});
    bucket.count = at + parameter.shape.numel();
    const bool first = !had_first_.contains(key);
    std::int64_t most = first ? caps_.first_bytes : caps_.bytes;
    const std::int64_t to_come = to_come_[{key, parameter.delayed}] -= bytes_of(parameter);
    if (caps_.last_bytes > 0) most = std::min(most, std::max(to_come, caps_.last_bytes));
    if (bucket.count * size >= most) {
      had_first_.insert(key);
      closed.push_back(std::move(bucket));
      open_.erase(key);
    }
  }
  void close_all() {
    for (auto& [key, bucket] : open_) closed.push_back(std::move(bucket));
    open_.clear();
  }

  std::vector<Bucket> closed;

 private:
  using Key = std::tuple<DType, int, int>;  // dtype, part and owner
  static Key key_of(const ParameterSpec& parameter) {
    return {parameter.dtype, parameter.part, parameter.owner};
  }
  static std::int64_t bytes_of(const ParameterSpec& parameter) {
    return parameter.shape.numel() * static_cast<std::int64_t>(size_of(parameter.dtype));
  }
  BucketCaps caps_;
  std::map<Key, Bucket> open_;
  std::map<std::pair<Key, bool>, std::int64_t> to_come_;  // bytes; whether they are delayed
  std::set<Key> had_first_;
};

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const ParameterSpec> parameters, const BucketCaps& caps,
                                 std::span<const int> order) {
  PEAL_CHECK(caps.first_bytes > 0 && caps.bytes >= 0 && caps.last_bytes >= 0,
             "bucket plan: caps must be above 0 (0 bytes: chosen), got ", caps.first_bytes, " and ",
             caps.bytes, " bytes, and ", caps.last_bytes, " for the last");
  BucketCaps most = caps;
  if (most.bytes == 0) most.bytes = usual_bytes;
  Packing packing(most);
  bool delayed = false;
  for (const ParameterSpec& parameter : parameters) {
    if (parameter.requires_grad) packing.expect(parameter);
  }
  for (const std::size_t i : sequence_of(parameters, order)) {
    const ParameterSpec& parameter = parameters[i];
    if (!parameter.requires_grad) continue;
    if (parameter.delayed && !delayed) packing.close_all();
    delayed = parameter.delayed;
    packing.add(i, parameter);
  }
  packing.close_all();
  return std::move(packing.closed);
}

std::string describe(std::span<const ParameterSpec> parameters, std::span<const Bucket> buckets) {
  std::string text;
  for (const ParameterSpec& parameter : parameters) {
    text += concat("parameter ", parameter.name, " ", parameter.dtype, " ", parameter.shape,
                   parameter.requires_grad ? "" : " (frozen)",
                   parameter.part == 0 ? "" : concat(", device ", parameter.part, " of the model"),
                   "\n");
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string owner =
        buckets[b].owner == everyone ? "" : concat(" for rank ", buckets[b].owner);
    text += concat("bucket ", b, " of ", buckets[b].count, " ", buckets[b].dtype, owner, ":");
    for (const auto& entry : buckets[b].entries)
      text += concat(" ", entry.parameter, "@", entry.at);
    text += '\n';
  }
  return text;
}

}  // namespace peal::nn
