// SPDX-License-Identifier: Apache-2.0
// GradScaler: keeps gradients in f16 from falling below its range, by a factor on the loss that
// grows while all goes well and shrinks when a gradient became infinite or NaN; such a step is left
// out (PyTorch's torch.cuda.amp.GradScaler, with its constants; Micikevicius et al., "Mixed
// precision training", ICLR 2018, section 3.2).
//
//   nn::GradScaler scaler({}, job.group());
//   optimizer.zero_grad();
//   Tensor loss;
//   { Autocast guard(DType::f16); loss = cross_entropy(model(x), y); }
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                   // only to look at gradients, to clip them say
//   clip_grad_norm_(optimizer.parameters(), 1.0);
//   scaler.step(optimizer);
//   scaler.update();                              // once, after all optimizers
//
// A captured graph (core/graph.h) may have scale() and the backward, and each replay then the scale
// of its time; the others look at values and stay outside. With a group, the ranks agree: what one
// finds, all leave out, so replicas stay equal. Thread safety: one thread at a time.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>

namespace peal::nn {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // good steps in a row before it grows
  bool enabled = true;                  // false: everything passes through
};

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {}, comm::ProcessGroup group = {});
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  // loss * scale, in f32 where the loss is in low precision.
  Tensor scale(const Tensor& loss) const;
  // Divides the gradients by the scale, and finds out whether all are finite. Collective with a
  // group, whose ranks all get an Error that one has met. Error when it or step was called before
  // for this optimizer since the last update, and for f16 gradients, which what comes out might not
  // fit into: keep such parameters in f32; and without a group where other ranks have gradients
  // that this one has not: of pieces of sharded parameters, and Optimizer::lacks_gradients().
  void unscale_(Optimizer& optimizer);
  // optimizer.step() if all gradients are finite; unscales first where that was not done. Returns
  // whether it took the step. Error when called twice since the last update.
  bool step(Optimizer& optimizer);
  // Moves the scale. Error where no step was tried.
  void update();

  double get_scale() const { return options_.enabled ? *scale_ : 1; }
  // "scale" f64 and "growth_tracker" i64, the good steps since the scale last moved.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct Found {
    bool infinite = false, stepped = false;
  };

  bool is_infinite(const Optimizer& optimizer) const;
  bool any_infinite(const Optimizer& optimizer) const;

  GradScalerOptions options_;
  comm::ProcessGroup group_;
  std::shared_ptr<double> scale_;  // for graphs, too
  std::int64_t good_steps_ = 0;
  std::map<const Optimizer*, Found> found_;  // since the last update
};

}  // namespace peal::nn
