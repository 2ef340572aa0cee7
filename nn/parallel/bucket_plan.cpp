// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/bucket_plan.h>

#include <algorithm>
#include <map>
#include <set>

namespace peal::nn {

namespace {

std::int64_t chosen_bytes(std::span<const ParameterSpec> parameters, bool several_nodes) {
  constexpr std::int64_t mib = std::int64_t{1} << 20, most = 25 * mib;
  if (!several_nodes) return most;
  std::int64_t all = 0;
  for (const ParameterSpec& each : parameters) {
    const auto size = static_cast<std::int64_t>(size_of(each.dtype));
    if (each.requires_grad) all += each.shape.numel() * size;
  }
  return std::clamp(all / 32, mib, most);
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const ParameterSpec> parameters, const BucketCaps& caps,
                                 bool several_nodes) {
  PEAL_CHECK(caps.first_bytes > 0 && caps.bytes >= 0,
             "bucket plan: caps must be above 0 (0 bytes: chosen), got ", caps.first_bytes, " and ",
             caps.bytes, " bytes");
  const std::int64_t most = caps.bytes > 0 ? caps.bytes : chosen_bytes(parameters, several_nodes);
  std::vector<Bucket> closed;
  std::map<DType, Bucket> open;
  std::set<DType> had_first;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const ParameterSpec& parameter = parameters[i];
    if (!parameter.requires_grad) continue;
    const auto size = static_cast<std::int64_t>(size_of(parameter.dtype));
    Bucket& bucket = open[parameter.dtype];
    bucket.dtype = parameter.dtype;
    const std::int64_t line = 64 / size;
    const std::int64_t at = (bucket.count + line - 1) / line * line;
    bucket.entries.push_back({static_cast<int>(i), at});
    bucket.count = at + parameter.shape.numel();
    const bool first = !had_first.contains(parameter.dtype);
    if (bucket.count * size >= (first ? caps.first_bytes : most)) {
      had_first.insert(parameter.dtype);
      closed.push_back(std::move(bucket));
      open.erase(parameter.dtype);
    }
  }
  for (auto& [dtype, bucket] : open) closed.push_back(std::move(bucket));
  return closed;
}

std::string describe(std::span<const ParameterSpec> parameters, std::span<const Bucket> buckets) {
  std::string text;
  for (const ParameterSpec& parameter : parameters) {
    text += concat("parameter ", parameter.name, " ", parameter.dtype, " ", parameter.shape,
                   parameter.requires_grad ? "" : " (frozen)", "\n");
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    text += concat("bucket ", b, " of ", buckets[b].count, " ", buckets[b].dtype, ":");
    for (const auto& entry : buckets[b].entries)
      text += concat(" ", entry.parameter, "@", entry.at);
    text += '\n';
  }
  return text;
}

}  // namespace peal::nn
