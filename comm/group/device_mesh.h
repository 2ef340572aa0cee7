// SPDX-License-Identifier: Apache-2.0
// Device mesh (PyTorch: torch.distributed.device_mesh): a group's ranks as an array of several
// named dimensions, with a group along each. Who shards a model's layers over some ranks and its
// batches over the others names the dimensions, and never counts ranks:
//
//   const DeviceMesh mesh(group, {2, 4}, {"dp", "tp"});
//   mesh.get_group("tp").all_reduce(x).wait();          // with the ranks of one row of the mesh
//   mesh.get_local_rank("dp"), mesh.size("dp");         // which share of the batches
//   mesh[{"dp", "tp"}], mesh["tp"]                      // meshes of some of the dimensions
//
// Ranks lie in it row-major: the last dimension's neighbours are neighbours in the group, so it
// belongs to what talks most, inside a node. A handle: copies share the groups. Thread safety: as
// the groups'.
#pragma once

#include <peal/comm/group/process_group.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

class DeviceMesh {
 public:
  DeviceMesh() = default;
  // Collective over `group`, the same on all its ranks, of which there are as many as places.
  // `names`: one for each dimension, all different; none: "dim_0", "dim_1", ... Error on every rank
  // where ranks differ.
  DeviceMesh(const ProcessGroup& group, std::vector<int> shape,
             std::vector<std::string> names = {});

  // How many dimensions there are.
  int ndim() const { return static_cast<int>(dims_.size()); }
  // How many ranks are in it, and along a dimension; Error for a name that it has not.
  int size() const;
  int size(std::string_view name) const;
  // Ranks along each dimension, and its name.
  std::vector<int> shape() const;
  std::vector<std::string> mesh_dim_names() const;

  // The ranks that differ from this one in that dimension alone; of a mesh of one dimension the
  // name may be left out.
  ProcessGroup get_group(std::string_view name) const;
  ProcessGroup get_group() const;
  // This rank's place in it, and in every dimension.
  int get_local_rank(std::string_view name) const;
  int get_local_rank() const;
  std::vector<int> get_coordinate() const;

  // The part of the mesh in which this rank lies when it keeps its place in the other dimensions.
  // In the mesh's order, as in PyTorch; the groups are the mesh's. Nothing is communicated.
  DeviceMesh operator[](std::string_view name) const;
  DeviceMesh operator[](std::initializer_list<std::string_view> names) const;
  // The same part as one dimension of that name (PyTorch: _flatten): a group over several, as that
  // in which gradients are averaged that both shards of data and of sequences contribute to.
  // Collective over the group that the mesh was made of, which must be whole: not of a part. Error
  // on every rank where ranks differ.
  DeviceMesh flatten(std::initializer_list<std::string_view> names, std::string name) const;

  // "dp 2 x tp 4, this rank at (1, 1)".
  std::string describe() const;

 private:
  struct Dim {
    std::string name;
    ProcessGroup group;
  };
  const Dim& dim(std::string_view name) const;
  const Dim& only() const;
  // Error unless they are dimensions of this mesh, each once and in its order.
  std::vector<Dim> some(std::initializer_list<std::string_view> names) const;

  ProcessGroup all_;  // that the mesh was made of; none: it is a part
  std::vector<Dim> dims_;
};

}  // namespace peal::comm
