// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/intra_op.h>

#include <omp.h>

namespace peal {

void set_num_threads(int threads) {
  PEAL_CHECK(threads >= 1, "set_num_threads: expected at least 1, got ", threads);
  omp_set_num_threads(threads);
}

int num_threads() { return omp_get_max_threads(); }

}  // namespace peal
