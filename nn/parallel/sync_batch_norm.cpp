// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/in_stream.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/convert_batch_norm.h>
#include <peal/nn/parallel/same_calls.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <cstdint>
#include <string>
#include <utility>

namespace peal::nn {
namespace {

std::uint64_t tag_of(std::string_view text) {
  std::uint64_t tag = 0;
  for (const char c : text) comm::mix(tag, static_cast<unsigned char>(c));
  return tag;
}

}  // namespace

// What forward and backward send, under names that tell the calls of different layers apart.
struct SyncBatchNorm::Meeting {
  Meeting(comm::ProcessGroup with, std::string_view path) : group(std::move(with)) {
    PEAL_CHECK(bool(group), "SyncBatchNorm", path.empty() ? "" : " ", path,
               ": expected a process group, got none");
    name = concat(synchronised_layer, path.empty() ? "" : " ", path);
    forward = name + ", forward";
    backward = name + ", backward";
    forward_tag = tag_of(forward);
    backward_tag = tag_of(backward);
  }

  comm::ProcessGroup group;
  std::string name, forward, backward;
  std::uint64_t forward_tag, backward_tag;
};

SyncBatchNorm::SyncBatchNorm(std::int64_t channels, comm::ProcessGroup group,
                             const BatchNormSettings& settings)
    : BatchNorm(channels, settings),
      meeting_(std::make_shared<const Meeting>(std::move(group), "")) {}

SyncBatchNorm::SyncBatchNorm(const BatchNorm& other, comm::ProcessGroup group,
                             std::string_view path)
    : BatchNorm(Sharing{other}),
      meeting_(std::make_shared<const Meeting>(std::move(group), path)) {}

const comm::ProcessGroup& SyncBatchNorm::group() const { return meeting_->group; }

Tensor SyncBatchNorm::forward(const Tensor& x) {
  PEAL_CHECK(x.dim() >= 2, "SyncBatchNorm: expected [N, C] or [N, C, ...], got shape ", x.shape());
  if (!training() || !running_mean.defined() || meeting_->group.world() == 1) return normalised(x);
  const EqualWrites::Scope mean(*writes_[0], running_mean), variance(*writes_[1], running_var),
      count(*writes_[2], num_batches_tracked);
  return normalised(x);
}

std::vector<SyncBatchNorm::Tracked> SyncBatchNorm::tracked() const {
  if (!running_mean.defined()) return {};
  return {{running_mean, writes_[0]}, {running_var, writes_[1]}, {num_batches_tracked, writes_[2]}};
}

Tensor SyncBatchNorm::apply(const Tensor& x, const BatchNormOptions& options) {
  const int world = meeting_->group.world();
  if (!options.training || world == 1) return BatchNorm::apply(x, options);
  const auto gather = [&](const Tensor& rows) {
    const Meeting& here = *meeting_;
    const std::int64_t row = rows.size(1);
    announce(here.group,
             {.what = Announcement::What::all_gather,
              .count = row,
              .dtype = rows.dtype(),
              .tag = here.forward_tag},
             here.forward);
    with_advice([&] {
      const comm::InStream stays;
      here.group
          .all_gather(rows, rows.detach({row}, here.group.rank() * row),
                      {here.forward, here.forward_tag})
          .wait();
    });
  };
  const auto add_up = [meeting = meeting_](const Tensor& sums) {
    announce(meeting->group,
             {.what = Announcement::What::all_reduce,
              .count = sums.numel(),
              .dtype = sums.dtype(),
              .tag = meeting->backward_tag},
             meeting->backward);
    with_advice([&] {
      const comm::InStream stays;
      meeting->group
          .all_reduce(sums, comm::ReduceOp::sum, {meeting->backward, meeting->backward_tag})
          .wait();
    });
  };
  try {
    return batch_norm(x, running_mean, running_var, weight, bias, options,
                      {world, meeting_->group.rank(), gather, add_up});
  } catch (const Error& error) {  // an op does not know whose it is
    const std::string_view what = error.what(), op = "sync_batch_norm: ";
    if (!what.starts_with(op)) throw;
    throw Error(concat(meeting_->name, ": ", what.substr(op.size())));
  }
}

Module convert_sync_batchnorm(Module module, const comm::ProcessGroup& group) {
  return convert_batch_norm(
      std::move(module), "convert_sync_batchnorm",
      [](Module& norm) { return norm.as<SyncBatchNorm>() != nullptr; },
      [&](const BatchNorm& norm, const std::string& path) {
        return SyncBatchNorm(norm, group, path);
      });
}

}  // namespace peal::nn
