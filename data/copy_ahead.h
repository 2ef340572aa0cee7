// SPDX-License-Identifier: Apache-2.0
// Copies a batch to a device while the device computes on the one before: from page-locked memory,
// in a stream of its own. Invariant: what take() gives may be used in the stream that is current
// there, at once. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/stream.h>
#include <peal/data/batch.h>

namespace peal::data {

class CopyAhead {
 public:
  explicit CopyAhead(Device device) : stream_(Stream::create(device)) {}
  // Lets the last copy end, since memory it reads goes with this.
  ~CopyAhead() { event_.synchronize(); }
  CopyAhead(const CopyAhead&) = delete;
  CopyAhead& operator=(const CopyAhead&) = delete;

  // Puts the copy into the stream. One at a time: the next after take().
  void start(Batch batch);
  Batch take();

 private:
  Stream stream_;
  Event event_;
  Batch source_, copy_;
};

}  // namespace peal::data
