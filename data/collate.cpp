// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/collate.h>
#include <peal/data/rows.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace peal::data {
namespace {

std::string described(const Tensor& x) {
  return x.defined() ? concat(x.dtype(), " ", x.shape()) : std::string("none");
}

// The tensor of one name in all samples.
using Column = std::vector<Tensor>;

// Shapes are held against the first one's from dimension `from` on.
void check_column(const Column& column, std::string_view name, int from) {
  const Tensor& first = column.front();
  for (std::size_t i = 0; i < column.size(); ++i) {
    const Tensor& x = column[i];
    bool alike = x.defined() == first.defined();
    if (alike && x.defined()) {
      PEAL_CHECK(x.device() == Device{}, "[data] collate: expected tensors on the CPU, sample ", i,
                 " of the batch has '", name,
                 "' elsewhere; let the loader move batches (LoaderOptions::device)");
      alike = x.dtype() == first.dtype() && x.dim() == first.dim();
      for (int d = from; alike && d < x.dim(); ++d) alike = x.size(d) == first.size(d);
    }
    PEAL_CHECK(alike, "[data] collate: sample ", i, " of the batch has '", name, "' ", described(x),
               ", sample 0 has ", described(first),
               from == 0 ? "; give all one type and shape, or pad them (pad_collate)"
                         : "; only first dimensions may differ");
  }
}

Tensor stacked(const Column& column, std::string_view name) {
  check_column(column, name, 0);
  const Tensor& first = column.front();
  if (!first.defined()) return first;
  const Tensor all = room_for(std::ssize(column), first.shape(), first.dtype());
  const std::size_t bytes = first.view().bytes();
  auto* to = static_cast<std::byte*>(all.raw());
  for (const Tensor& x : column) {
    if (bytes > 0) std::memcpy(to, x.raw(), bytes);
    to += bytes;
  }
  return all;
}

// Whether a T can be `value`; floating point numbers come near any.
template <class T>
bool holds(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value == 0 || value == 1;
  } else if constexpr (std::is_integral_v<T>) {
    // The limit above is a power of two, which f64 has exactly, as it has the one below.
    const double end = 2 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
    return value == std::trunc(value) && value < end &&
           value >= static_cast<double>(std::numeric_limits<T>::min());
  } else {
    return true;
  }
}

void fill(const Tensor& x, double value, std::string_view name) {
  visit(x.dtype(), [&]<class T>() {
    PEAL_CHECK(holds<T>(value), "[data] collate: '", name, "' is ", x.dtype(),
               ", which does not hold its padding ", value, "; give another (Padding)");
    const auto element = [&] {
      if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(value);
      } else {
        return T(static_cast<float>(value));
      }
    }();
    std::fill_n(x.data<T>(), x.numel(), element);
  });
}

Tensor padded(const Column& column, std::string_view name, double value, Padding::Side side) {
  const Tensor& first = column.front();
  if (!first.defined() || first.dim() == 0) return stacked(column, name);
  check_column(column, name, 1);
  Shape shape = first.shape();
  bool alike = true;
  for (const Tensor& x : column) {
    alike = alike && x.size(0) == first.size(0);
    shape[0] = std::max(shape[0], x.size(0));
  }
  const Tensor all = room_for(std::ssize(column), shape, first.dtype());
  if (!alike) fill(all, value, name);
  const std::size_t row =
      static_cast<std::size_t>(shape_of_row(first).numel()) * size_of(first.dtype());
  auto* to = static_cast<std::byte*>(all.raw());
  for (const Tensor& x : column) {
    const auto missing = static_cast<std::size_t>(shape[0] - x.size(0)) * row;
    const std::size_t bytes = x.view().bytes();
    if (bytes > 0) std::memcpy(to + (side == Padding::left ? missing : 0), x.raw(), bytes);
    to += missing + bytes;
  }
  return all;
}

// `join` makes one tensor of a column and its name.
template <class Join>
Batch column_by_column(std::span<const Sample> samples, const Join& join) {
  PEAL_CHECK(!samples.empty(), "[data] collate: expected at least one sample, got none");
  const auto column = [&](const auto& of) {
    Column all;
    for (const Sample& sample : samples) all.push_back(of(sample));
    return all;
  };
  Batch batch{join(column([](const Sample& s) { return s.x; }), "x"),
              join(column([](const Sample& s) { return s.y; }), "y")};
  const NamedTensors& names = samples.front().more;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const NamedTensors& more = samples[i].more;
    const bool alike = std::equal(more.begin(), more.end(), names.begin(), names.end(),
                                  [](const auto& a, const auto& b) { return a.first == b.first; });
    PEAL_CHECK(alike, "[data] collate: sample ", i,
               " of the batch has other names in `more` than sample 0; give all the same, in one "
               "order");
  }
  for (std::size_t k = 0; k < names.size(); ++k) {
    const std::string& name = names[k].first;
    batch.more.emplace_back(name,
                            join(column([&](const Sample& s) { return s.more[k].second; }), name));
  }
  return batch;
}

}  // namespace

Batch collate(std::span<const Sample> samples) {
  return column_by_column(
      samples, [](const Column& column, std::string_view name) { return stacked(column, name); });
}

Collate pad_collate(const Padding& padding) {
  return [padding](std::span<const Sample> samples) {
    Batch batch = column_by_column(samples, [&](const Column& column, std::string_view name) {
      const double value = name == "x" ? padding.value : name == "y" ? padding.y_value : 0;
      return padded(column, name, value, padding.side);
    });
    const bool there = std::any_of(batch.more.begin(), batch.more.end(),
                                   [](const auto& entry) { return entry.first == "lengths"; });
    if (there || !batch.x.defined() || batch.x.dim() < 2) return batch;
    std::vector<std::int64_t> lengths;
    for (const Sample& sample : samples) lengths.push_back(sample.x.size(0));
    batch.more.emplace_back("lengths", Tensor::from(lengths, {std::ssize(lengths)}, Device{}));
    return batch;
  };
}

}  // namespace peal::data
