// SPDX-License-Identifier: Apache-2.0
// Tuning file (NCCL: tuner configuration; Open MPI: dynamic rules): which algorithm was the
// quickest at which size, measured on a machine, for the groups that were tried there.
// `peal-schedule calibrate` writes it, and a world's rank 0 reads it at the start and tells the
// others, so that all choose alike. A file for another machine, of another version, or of which a
// part is missing, is warned of and passed over: training goes on with what is built in.
//
//   peal tuning 1
//   machine 2 cores, AMD EPYC
//   group mpi, 2 ranks, 1 nodes
//   shared all_reduce=slots:0-12345;direct_slices:12346-max
//   messages all_reduce=recursive_doubling:0-8192;circulant:8193-max
//   digest 0123456789abcdef
//
// Rules are PEAL_ALGO's (selection.h); of a collective, they cover all sizes, in order. Lines that
// begin with # are for people. Thread safety: values and functions without state.
#pragma once

#include <peal/comm/group/selection.h>

#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

struct Tuning {
  struct Group {
    std::string transport;  // "mpi"
    int ranks = 0, nodes = 0;
    Rules shared, messages;  // for ranks that share memory, and by messages; empty: not measured
    bool crowded = false;    // there were fewer cores than ranks
  };

  std::string machine;  // as this_machine()
  std::vector<Group> groups;

  // Error that says what is wrong with it.
  static Tuning parse(std::string_view text);
  std::string text() const;
  // In the place of what there is for such a group; what the new one has not measured stays.
  void put(Group group);
  // What was measured on a group most like that: over the same transport, with cores for all or
  // not, as this one, of at most twice or half as many ranks, and on as many nodes each way. Null:
  // none.
  const Group* nearest(std::string_view transport, int ranks, int nodes, bool crowded) const;
};

// "2 cores, AMD EPYC 9B45": what the times of collectives depend on.
std::string this_machine();

// Where the file is: what PEAL_TUNING says, nowhere (empty) for 0 or off; else the user's cache,
// $XDG_CACHE_HOME/peal or ~/.cache/peal, where it has a name that is this machine's.
struct TuningPath {
  std::string path;
  bool by_user = false;
};
TuningPath tuning_path();

// The path, a new line, and the file's text, if it is one for this machine. Else nothing, and a
// warning that says why and what to do; none where `path` is empty.
std::string read_tuning(const std::string& path);
// What that says for the group.
Selection::Measured measured_for(std::string_view read, std::string_view transport, int ranks,
                                 int nodes, bool crowded);
// Whole or not at all. Makes the folders it needs. Error where it cannot be written.
void save_tuning(const std::string& path, const Tuning& tuning);

}  // namespace peal::comm
