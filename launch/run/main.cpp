// SPDX-License-Identifier: Apache-2.0
// peal-run: starts a program as the ranks of a job. peal-run --help says how.
#include <peal/launch/run/start.h>

int main(int argc, char** argv) { return peal::launch::start_ranks({argv + 1, argv + argc}); }
