// SPDX-License-Identifier: Apache-2.0
// One source for nine programs; PEAL_PERF_OPERATION says which.
//
//   launch/tools/peal-mpirun -n 2 build/release/bench/perf/all_reduce_perf -b 8 -e 64M -f 2
#include <peal/bench/perf/program.h>

int main(int argc, char** argv) { return peal::bench::perf_main(PEAL_PERF_OPERATION, argc, argv); }
