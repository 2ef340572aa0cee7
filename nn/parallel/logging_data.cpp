// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/logging_data.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace peal::nn {

std::string describe(const DDPLoggingData& data) {
  if (data.step == 0) return "no step was measured\n";
  const auto ms = [](double seconds) { return seconds * 1e3; };
  std::string text = fmt::format(
      "step {}: forward {:.3f} ms, backward {:.3f}, communication {:.3f}, {:.3f} of it within "
      "backward; exposed {:.3f}, on the rank with most {:.3f}\n",
      data.step, ms(data.forward_compute_time), ms(data.backward_compute_time),
      ms(data.backward_comm_time), ms(data.backward_compute_comm_overlap_time),
      ms(data.exposed_comm_time), ms(data.largest_exposed_comm_time));
  text +=
      fmt::format("{:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "bucket", "bytes",
                  "ready ms", "queue", "copy-in", "slowest", "wire", "copy-out", "exposed", "last");
  for (std::size_t b = 0; b < data.buckets.size(); ++b) {
    const BucketTimes& bucket = data.buckets[b];
    const std::string last =
        bucket.last_rank < 0 ? std::string("not known")
                             : fmt::format("rank {}, by {}", bucket.last_rank, bucket.held_back_by);
    text += fmt::format(
        "{:>6} {:>10} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}  {}\n", b,
        bucket.bytes, ms(bucket.ready), ms(bucket.queue), ms(bucket.copy_in), ms(bucket.slowest),
        ms(bucket.wire), ms(bucket.copy_out), ms(bucket.exposed), last);
  }
  const bool known = std::ranges::none_of(
      data.buckets, [](const BucketTimes& bucket) { return std::isnan(bucket.wire); });
  if (!known) text += "nan: not measured, as there was no room for records of all collectives\n";
  return text;
}

}  // namespace peal::nn
