// SPDX-License-Identifier: Apache-2.0
// Threads inside one op (PyTorch: torch.set_num_threads). Kernels and oneDNN share one OpenMP pool.
// Thread safety: the setting is the calling thread's own, so ranks that are threads may differ.
#pragma once

namespace peal {

// REQUIRES: threads >= 1.
void set_num_threads(int threads);
int num_threads();

}  // namespace peal
