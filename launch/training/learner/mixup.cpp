// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/images/mixup.h>
#include <peal/launch/training/learner/mixup.h>
#include <peal/launch/training/learner/outputs.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

// Of this rank's batch. Its number is one that no sample has.
data::Draw draw_of_batch(const Loop& loop) {
  const data::DataLoader& loader = *loop.training_loader;
  const std::int64_t number = loop.iter * loop.job.world() + loop.job.rank();
  return data::Draws{loader.options().seed.value_or(0), loader.epoch()}.of(
      std::numeric_limits<std::int64_t>::min() + number);
}

// The numbers below count in an order that is drawn.
Tensor drawn_order(std::int64_t count, data::Draw& draw, Device device) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[draw.below(static_cast<std::uint32_t>(i))]);
  }
  return Tensor::from(order, {count}, device);
}

// [B] as [B, 1, ...], beside x.
Tensor beside(const Tensor& shares, const Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  return cast(reshape(shares, shape), x.dtype());
}

}  // namespace

MixHandler::MixHandler(const char* name, double alpha) : name_(name), alpha_(alpha) {
  PEAL_CHECK(alpha > 0 && std::isfinite(alpha), "[launch] learner: ", name,
             ": expected a finite alpha above 0, got ", alpha);
}

void MixHandler::before_batch(Loop& loop) {
  shares_ = others_y_ = Tensor();
  data::Batch& batch = loop.batch;
  if (!loop.training || !batch.y.defined() || batch.size() == 0) return;
  PEAL_CHECK(is_floating(batch.x.dtype()), "[launch] learner: ", name_, " mixes numbers, and x is ",
             batch.x.dtype(), "; mix what the model makes of them");
  PEAL_CHECK(batch.more.empty(), "[launch] learner: ", name_,
             " mixes x alone, and batches have more: ", batch.more.front().first);
  data::Draw draw = draw_of_batch(loop);
  const Tensor order = drawn_order(batch.size(), draw, batch.x.device());
  const auto shares = mix(batch.x, index_select(batch.x, 0, order), draw);
  shares_ = Tensor::from(shares, {batch.size()}, batch.y.device());
  const Tensor others_y = index_select(batch.y, 0, order.to(batch.y.device()));
  if (is_floating(batch.y.dtype())) {
    batch.y = lerp(others_y, batch.y, beside(shares_, batch.y));
  } else {
    others_y_ = others_y;
  }
}

void MixHandler::after_loss(Loop& loop) {
  if (!loop.training || !others_y_.defined()) return;
  const Tensor own = loss_of_each(loop.loss_function, loop.output, loop.batch.y);
  const Tensor others = loss_of_each(loop.loss_function, loop.output, others_y_);
  loop.loss = mean(lerp(others, own, beside(shares_.to(own.device()), own)));
}

std::vector<float> MixUp::mix(Tensor& x, const Tensor& others, data::Draw& draw) const {
  std::vector<float> shares(static_cast<std::size_t>(x.size(0)));
  for (float& share : shares) {
    const double drawn = data::drawn_beta(alpha(), draw);
    share = static_cast<float>(std::max(drawn, 1 - drawn));
  }
  x = lerp(others, x, beside(Tensor::from(shares, {x.size(0)}, x.device()), x));
  return shares;
}

std::vector<float> CutMix::mix(Tensor& x, const Tensor& others, data::Draw& draw) const {
  PEAL_CHECK(x.dim() == 4, "[launch] learner: CutMix: expected images x [B, C, H, W], got ",
             x.shape());
  const std::int64_t height = x.size(2), width = x.size(3);
  const data::Box box = data::cutmix_box({height, width}, data::drawn_beta(alpha(), draw), draw);
  const Tensor inside = Tensor::zeros({1, 1, height, width}, DType::boolean, Device{});
  for (std::int64_t row = box.top; row < box.top + box.height; ++row) {
    std::fill_n(inside.data<bool>() + row * width + box.left, box.width, true);
  }
  x = where(inside.to(x.device()), others, x);
  const double area = static_cast<double>(box.height * box.width);
  const auto share = static_cast<float>(1 - area / static_cast<double>(height * width));
  return std::vector<float>(static_cast<std::size_t>(x.size(0)), share);
}

}  // namespace peal::launch
