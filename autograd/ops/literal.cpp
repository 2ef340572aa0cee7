// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/literal.h>
#include <peal/autograd/ops/promotion.h>

#include <string>

namespace peal {
namespace {

// Rows of a literal as one: the shape is that of the first row at each depth.
struct Flat {
  Shape shape;
  std::vector<Scalar> numbers;
  std::optional<DType> dtype;

  void add(const Literal& literal, int depth, const std::string& place) {
    if (const Scalar* number = literal.number()) {
      PEAL_CHECK(depth == shape.dim(), "tensor: expected a row of ",
                 depth < shape.dim() ? shape[depth] : 0, " at ", place,
                 ", as elsewhere, got the number ", *number);
      dtype = dtype ? promote_types(*dtype, number->dtype()) : number->dtype();
      numbers.push_back(*number);
      return;
    }
    const std::vector<Literal>& row = literal.row();
    PEAL_CHECK(depth < shape.dim(), "tensor: expected a number at ", place,
               ", as elsewhere, got a row of ", row.size());
    PEAL_CHECK(std::ssize(row) == shape[depth], "tensor: expected a row of ", shape[depth], " at ",
               place, ", as elsewhere, got one of ", row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      add(row[i], depth + 1, concat(place, "[", i, "]"));
    }
  }
};

Shape shape_of(const Literal& literal) {
  Shape shape;
  for (const Literal* first = &literal; first->number() == nullptr; first = &first->row()[0]) {
    shape.push_back(std::ssize(first->row()));
    if (first->row().empty()) break;
  }
  return shape;
}

}  // namespace

Tensor tensor(const Literal& literal, std::optional<DType> dtype, Device device) {
  const OpName name("tensor");
  Flat flat{shape_of(literal), {}, {}};
  flat.add(literal, 0, "");
  const DType own = flat.dtype.value_or(DType::f32), wanted = dtype.value_or(own);
  // By the widest type of the category, so that no number is rounded twice.
  if (own == DType::f32) {
    std::vector<double> values;
    for (const Scalar& number : flat.numbers) values.push_back(number.to<double>());
    return cast(Tensor::from(values, flat.shape, device), wanted);
  }
  std::vector<std::int64_t> values;
  for (const Scalar& number : flat.numbers) {
    values.push_back(number.to<std::int64_t>());
    if (wanted != DType::boolean && wanted != DType::i64) {
      check_value("tensor", number.to<double>(), wanted);
    }
  }
  return cast(Tensor::from(values, flat.shape, device), wanted);
}

}  // namespace peal
