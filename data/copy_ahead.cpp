// SPDX-License-Identifier: Apache-2.0
#include <peal/data/copy_ahead.h>

#include <utility>

namespace peal::data {

void CopyAhead::start(Batch batch) {
  event_.synchronize();  // the copy before this one, whose source goes now; reached long ago
  source_ = std::move(batch);
  const StreamGuard guard(stream_);
  copy_ = source_.to(stream_.device(), true);
  event_.record(stream_);
}

Batch CopyAhead::take() {
  const Stream here = current_stream(stream_.device());
  here.wait(event_);
  Batch batch = std::exchange(copy_, {});
  const auto used_here = [&](const Tensor& tensor) {
    if (tensor.defined()) tensor.record_stream(here);
  };
  used_here(batch.x);
  used_here(batch.y);
  for (const auto& [name, tensor] : batch.more) used_here(tensor);
  return batch;
}

}  // namespace peal::data
