// SPDX-License-Identifier: Apache-2.0
// The device mesh: who is in which group along which dimension, and what is refused, on all ranks.
#include <peal/comm/group/device_mesh.h>
#include <peal/comm/start/threads.h>
#include <peal/tests/errors.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;

namespace {

using Ints = std::vector<int>;

// The numbers in `all` of the group's ranks, in its order.
Ints ranks_of(const ProcessGroup& group, const ProcessGroup& all) {
  Ints ranks;
  for (const std::string& each : group.all_gather_object(std::to_string(all.rank()))) {
    ranks.push_back(std::stoi(each));
  }
  return ranks;
}

}  // namespace

TEST_CASE("a mesh of two dimensions has a group for each row and each column") {
  run_ranks(6, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 3}, {"dp", "tp"});
    const int row = group.rank() / 3, column = group.rank() % 3;
    CHECK(mesh.ndim() == 2);
    CHECK(mesh.size() == 6);
    CHECK(mesh.size("tp") == 3);
    CHECK(mesh.shape() == Ints{2, 3});
    CHECK(mesh.get_coordinate() == Ints{row, column});
    CHECK(mesh.get_local_rank("dp") == row);
    CHECK(ranks_of(mesh.get_group("tp"), group) == Ints{3 * row, 3 * row + 1, 3 * row + 2});
    CHECK(ranks_of(mesh.get_group("dp"), group) == Ints{column, column + 3});
    CHECK(ranks_of(mesh["tp"].get_group(), group) == Ints{3 * row, 3 * row + 1, 3 * row + 2});
    CHECK(mesh["tp"].get_local_rank() == column);
    CHECK(mesh.describe() == concat("dp 2 x tp 3, this rank at (", row, ", ", column, ")"));
    const Tensor sum = Tensor::from(std::vector<float>{static_cast<float>(group.rank())}, {1});
    mesh.get_group("dp").all_reduce(sum).wait();
    CHECK(sum.item<float>() == static_cast<float>(2 * column + 3));
  });
}

TEST_CASE("a part of a mesh keeps the other places, and several dimensions become one") {
  run_ranks(8, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2, 2}, {"pp", "dp", "tp"});
    const int pp = group.rank() / 4, tp = group.rank() % 2;
    const DeviceMesh part = mesh[{"pp", "tp"}];
    CHECK(part.shape() == Ints{2, 2});
    CHECK(part.get_coordinate() == Ints{pp, tp});
    CHECK(mesh.flatten({"dp", "tp"}, "share").get_local_rank("share") == group.rank() % 4);
    const DeviceMesh both = mesh.flatten({"pp", "tp"}, "both");
    CHECK(both.mesh_dim_names() == std::vector<std::string>{"both"});
    const int dp = group.rank() / 2 % 2 * 2;
    CHECK(ranks_of(both.get_group(), group) == Ints{dp, dp + 1, dp + 4, dp + 5});
    CHECK(contains(error_of([&] { part.flatten({"pp", "tp"}, "both"); }), "a part of a mesh"));
    CHECK(contains(error_of([&] { part.get_group(); }), "pp 2 x tp 2"));
    CHECK(contains(error_of([&] { mesh.get_group("cp"); }), "no dimension cp in the mesh of pp 2"));
    CHECK(contains(error_of([&] { mesh[{"tp", "dp"}]; }), "got dp behind tp"));
    CHECK(contains(error_of([&] { mesh[{"dp", "dp"}]; }), "each once"));
  });
}

TEST_CASE("any world has a mesh of itself, with names by default") {
  for (int world = 1; world <= 5; ++world) {
    run_ranks(world, [](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {1, group.world()});
      CHECK(mesh.mesh_dim_names() == std::vector<std::string>{"dim_0", "dim_1"});
      CHECK(mesh.get_local_rank("dim_1") == group.rank());
      CHECK(mesh.get_group("dim_0").world() == 1);
    });
  }
}

TEST_CASE("what is no mesh is refused on every rank, and the group goes on") {
  run_ranks(4, [](const ProcessGroup& group) {
    const auto refused = [&](const Ints& shape, const std::vector<std::string>& names = {}) {
      return error_of([&] { const DeviceMesh mesh(group, shape, names); });
    };
    CHECK(contains(refused({2, 3}), "it has 6 places, the group 4 ranks"));
    CHECK(contains(refused({}), "one dimension at least"));
    CHECK(contains(refused({-2, -2}), "dimension dim_0 has size -2"));
    CHECK(contains(refused({65536, 65536, 65536, 65536}), "places, the group 4 ranks"));
    CHECK(contains(refused({2, 2}, {"dp"}), "2 dimensions have 1 names"));
    CHECK(contains(refused({2, 2}, {"dp", "dp"}), "two dimensions have the name dp"));
    CHECK(contains(refused({2, 2}, {"dp", ""}), "dimension 1 has an empty name"));
    const std::string other = refused({2, 2}, {"dp", group.rank() == 2 ? "pp" : "tp"});
    CHECK(contains(other, "dp 2 x tp 2"));
    CHECK(contains(other, "dp 2 x pp 2"));
    CHECK(contains(other, "rank 2"));
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const std::string flat = error_of([&] { mesh.flatten({group.rank() < 2 ? "dp" : "tp"}, "x"); });
    CHECK(contains(flat, "[mesh] flatten is 'dp as x' on rank 0 and 'tp as x' on rank 2"));
    CHECK(contains(error_of([&] { mesh.flatten({group.rank() == 3 ? "cp" : "dp"}, "x"); }),
                   "rank 3: [mesh] no dimension cp"));
    const ProcessGroup& kept = mesh["tp"].get_group();  // outlives the part that it is of
    CHECK(kept.world() == 2);
    CHECK(DeviceMesh(group, {2, 2}).size() == 4);
  });
}
