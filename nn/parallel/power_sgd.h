// SPDX-License-Identifier: Apache-2.0
// PowerSGD: a communication hook that sends each gradient matrix M [n, m] as two of low rank, P [n,
// r] and Q [m, r], found by one step of power iteration across the ranks (Vogels, Karimireddy and
// Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS
// 2019, algorithms 1 and 2; PyTorch: powerSGD_hook):
//
//   P = average of M Q over ranks, made orthogonal;  Q = average of M^T P;  M becomes P Q^T
//
// What that leaves out a rank adds to its gradient in the next step (error feedback), and power
// iteration goes on from the last step's Q (warm start). Tensors of one dimension, and matrices
// that would not shrink, are averaged as they are, in the same messages as P. A tensor of more
// dimensions is the matrix of its first and all others. Buckets of f16 and bf16, and those that
// have no matrix that would shrink, are averaged as they are. Names are PyTorch's.
//
//   nn::PowerSGD power(group, {.matrix_approximation_rank = 2});
//   ddp.register_comm_hook(power.hook());
//
// What is left out is kept as a part of the mean gradient: it counts once, whatever the next step's
// sum is divided by (samples, ranks that have a batch), and of a parameter that no rank uses in a
// step it stays for the next. It is each rank's own: for a run that goes on bit by bit each rank
// saves its state. Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/nn/parallel/comm_hook.h>

#include <cstdint>
#include <memory>

namespace peal::nn {

struct PowerSGDOptions {
  std::int64_t matrix_approximation_rank = 1;
  std::int64_t start_powerSGD_iter = 10;  // before it gradients are averaged as they are
  double min_compression_rate = 2;        // matrices that shrink by less are averaged as they are
  bool use_error_feedback = true;
  bool warm_start = true;
};

class PowerSGD {
 public:
  // Error: a rank of the approximation below 1, a negative first iteration, or one of 0 with error
  // feedback or a warm start.
  explicit PowerSGD(comm::ProcessGroup group, const PowerSGDOptions& options = {});

  // Of one wrapper: a call for another, while that lives, is an Error. It shares the state with
  // this object. Its first call is an Error on all ranks where their options or iterations differ.
  CommHook hook() const;
  // Backwards so far that it has sent gradients of.
  std::int64_t iteration() const;

  // "iteration", and of each parameter that was compressed "NAME.error" [as the gradient] and
  // "NAME.q" [r * columns]. REQUIRES for loading: the same model and options; buckets may differ.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace peal::nn
