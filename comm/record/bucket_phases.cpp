// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/record/bucket_phases.h>

#include <algorithm>

namespace peal::comm {

// A sum that reads one's own `in` and stores into one's own `out` copies nothing.
void CollectiveTime::count(const Step& step, double moves, double end) {
  if (step.kind != Kind::copy || step.dst.owner != self || step.src.owner != self) return;
  const bool from_in = step.src.buffer == Buffer::in, to_out = step.dst.buffer == Buffer::out;
  if (from_in == to_out) return;
  (from_in ? copied_in : copied_out) += std::max(0.0, end - moves);
}

BucketPhases phases(const BucketTime& bucket) {
  BucketPhases all;
  all.queue = bucket.sent - bucket.ready;
  double last = bucket.sent;
  double* before = bucket.over != 0 ? &all.copy_in : &all.queue;  // the first collective
  for (const CollectiveTime& each : bucket.collectives) {
    *before += std::max(0.0, each.begin - last);
    before = &all.copy_out;
    all.queue += each.first - each.begin;
    const double took = each.end - each.first;
    const double in = std::min(each.copied_in, took), out = std::min(each.copied_out, took - in);
    all.copy_in += in;
    all.copy_out += out;
    all.transfer += took - in - out;
    last = std::max(last, each.end);
  }
  if (bucket.over != 0) all.copy_out += std::max(0.0, bucket.over - last);
  return all;
}

}  // namespace peal::comm
