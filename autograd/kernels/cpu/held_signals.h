// SPDX-License-Identifier: Apache-2.0
// Signal mask around oneDNN: its products of f32 point the stack register into a block of the heap
// where k is above 252 (AVX2, `mov rsp, ws` in jit_avx_gemm_f32) or 84 (AVX-512,
// jit_avx512_common_gemm_f32; versions 2 and 3), and the frame of a signal's handler would be
// written over what lies before that block. Thread safety: a mask is its thread's own.
//
// Held are the caller of oneDNN, the workers that it makes meanwhile and those of parallel_for. A
// worker that a region of the program's own has made (`#pragma omp parallel`) may help oneDNN as
// well, and is not: such a program blocks in these workers what it has handlers for.
#pragma once

#include <csignal>

namespace peal::cpu {

// Holds back, on the calling thread, all signals but those that tell of a fault of its own. Returns
// what it held back before.
sigset_t hold_signals();

// Of a worker in a team, which runs no handlers: it may be the caller's helper within oneDNN.
inline void hold_signals_of_worker() {
  [[maybe_unused]] thread_local const sigset_t before = hold_signals();
}

// While it lives, on the calling thread.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace peal::cpu
