// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/device_mesh.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace peal::comm {
namespace {

// "dp 2 x tp 4"
template <class Dims, class Size>
std::string in_words(const Dims& names, const Size& size) {
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    all += concat(all.empty() ? "" : " x ", names[i], " ", size(i));
  }
  return all;
}

// What a rank finds wrong by itself; empty: nothing.
std::string wrong_with(const ProcessGroup& group, const std::vector<int>& shape,
                       const std::vector<std::string>& names) {
  if (shape.empty()) return "a mesh has one dimension at least";
  if (names.size() != shape.size()) {
    return concat(shape.size(), " dimensions have ", names.size(), " names");
  }
  std::int64_t places = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1) return concat("dimension ", names[i], " has size ", shape[i]);
    if (names[i].empty()) return concat("dimension ", i, " has an empty name");
    if (std::count(names.begin(), names.end(), names[i]) > 1) {
      return concat("two dimensions have the name ", names[i]);
    }
    places = std::min<std::int64_t>(places * shape[i], std::int64_t{1} << 32);
  }
  if (places == group.world()) return {};
  return concat("it has ", places, " places, the group ", group.world(), " ranks");
}

}  // namespace

DeviceMesh::DeviceMesh(const ProcessGroup& group, std::vector<int> shape,
                       std::vector<std::string> names)
    : all_(group) {
  if (names.empty()) {
    for (std::size_t i = 0; i < shape.size(); ++i) names.push_back(concat("dim_", i));
  }
  const std::string mine =
      in_words(names, [&](std::size_t i) { return i < shape.size() ? shape[i] : 0; });
  agree_unless(group, "[mesh] the mesh", mine, wrong_with(group, shape, names),
               "give the same sizes and names on every rank");
  int stride = group.world();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const int beyond = stride;  // ranks from one place of the dimension before to the next
    stride /= shape[i];
    const int place = group.rank() % beyond / stride;
    dims_.push_back({std::move(names[i]), group.split(group.rank() - place * stride, place)});
  }
}

int DeviceMesh::size() const {
  int all = 1;
  for (const Dim& each : dims_) all *= each.group.world();
  return all;
}
int DeviceMesh::size(std::string_view name) const { return dim(name).group.world(); }

std::vector<int> DeviceMesh::shape() const {
  std::vector<int> all;
  for (const Dim& each : dims_) all.push_back(each.group.world());
  return all;
}
std::vector<std::string> DeviceMesh::mesh_dim_names() const {
  std::vector<std::string> all;
  for (const Dim& each : dims_) all.push_back(each.name);
  return all;
}

const DeviceMesh::Dim& DeviceMesh::dim(std::string_view name) const {
  const auto at =
      std::find_if(dims_.begin(), dims_.end(), [&](const Dim& each) { return each.name == name; });
  PEAL_CHECK(at != dims_.end(), "[mesh] no dimension ", name, " in the mesh of ", describe());
  return *at;
}
const DeviceMesh::Dim& DeviceMesh::only() const {
  PEAL_CHECK(ndim() == 1, "[mesh] expected the name of a dimension of ", describe());
  return dims_.front();
}

ProcessGroup DeviceMesh::get_group(std::string_view name) const { return dim(name).group; }
ProcessGroup DeviceMesh::get_group() const { return only().group; }
int DeviceMesh::get_local_rank(std::string_view name) const { return dim(name).group.rank(); }
int DeviceMesh::get_local_rank() const { return only().group.rank(); }
std::vector<int> DeviceMesh::get_coordinate() const {
  std::vector<int> all;
  for (const Dim& each : dims_) all.push_back(each.group.rank());
  return all;
}

std::vector<DeviceMesh::Dim> DeviceMesh::some(std::initializer_list<std::string_view> names) const {
  PEAL_CHECK(names.size() > 0, "[mesh] expected dimensions of ", describe());
  std::vector<Dim> found;
  const Dim* before = nullptr;
  for (const std::string_view name : names) {
    const Dim& next = dim(name);
    PEAL_CHECK(before == nullptr || before < &next, "[mesh] expected dimensions of ", describe(),
               " each once and in that order, got ", name, " behind ", before->name);
    found.push_back(next);
    before = &next;
  }
  return found;
}

DeviceMesh DeviceMesh::operator[](std::string_view name) const {
  DeviceMesh part;
  part.dims_ = {dim(name)};
  return part;
}
DeviceMesh DeviceMesh::operator[](std::initializer_list<std::string_view> names) const {
  DeviceMesh part;
  part.dims_ = some(names);
  if (part.ndim() == ndim()) part.all_ = all_;
  return part;
}

DeviceMesh DeviceMesh::flatten(std::initializer_list<std::string_view> names,
                               std::string name) const {
  PEAL_CHECK(all_, "[mesh] a part of a mesh, of ", describe(),
             ", cannot be flattened: flatten the whole mesh, by the same names");
  std::vector<Dim> wanted;
  std::string mine;
  for (const std::string_view each : names) mine += concat(each, " ");
  mine += concat("as ", name);
  const std::string wrong = failure_in([&] {
    wanted = some(names);
    PEAL_CHECK(!name.empty(), "[mesh] the name of a flat dimension is empty");
  });
  agree_unless(all_, "[mesh] flatten", mine, wrong, "flatten the same dimensions on every rank");
  int colour = 0, key = 0;
  for (const Dim& each : dims_) {
    const bool inner = std::any_of(wanted.begin(), wanted.end(),
                                   [&](const Dim& one) { return one.name == each.name; });
    int& place = inner ? key : colour;
    place = place * each.group.world() + each.group.rank();
  }
  DeviceMesh flat;
  flat.dims_ = {{std::move(name), all_.split(colour, key)}};
  return flat;
}

std::string DeviceMesh::describe() const {
  if (dims_.empty()) return "no dimensions";
  std::string place;
  for (const int each : get_coordinate()) place += concat(place.empty() ? "" : ", ", each);
  const std::vector<int> sizes = shape();
  return concat(in_words(mesh_dim_names(), [&](std::size_t i) { return sizes[i]; }),
                ", this rank at (", place, ")");
}

}  // namespace peal::comm
