// SPDX-License-Identifier: Apache-2.0
// Environment of a rank: what torchrun's processes have, by which a program of peal (torchrun.h)
// and one of PyTorch (init_method="env://") find each other. Thread safety: free functions without
// state.
#pragma once

#include <string>
#include <vector>

namespace peal::launch {

// One start of a job.
struct Attempt {
  int world = 1;
  std::string host = "127.0.0.1";  // where rank 0 listens
  int port = 0;
  std::string run = {};     // tells jobs apart
  std::string secret = {};  // PEAL_STORE_SECRET
  int restart = 0, max_restarts = 0;
  std::string gpus = {};  // CUDA_VISIBLE_DEVICES; empty: as it is
};

// NAME=VALUE for each variable: those of `inherited`, without what other launchers say of ranks,
// and the rank's own. One that is not `bound` is not to bind itself either.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const Attempt& attempt, int rank, int local_rank,
                                          int local_world, bool bound);

// Of this process.
std::vector<std::string> own_environment();

// One that is free on all devices at the moment, below those that the system gives to who asks for
// any. Error where none is found.
int free_port();

}  // namespace peal::launch
