// SPDX-License-Identifier: Apache-2.0
// Pytrees, as JAX calls them (PyTorch: torch.utils._pytree): the tensors in a value, through lists,
// maps, pairs, tuples, optionals, and structs that show their fields, however deep. Module::call()
// finds by them what hooks see. Thread safety: as of the value.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace peal::nn {

// The kinds of values that are looked into.
template <class T>
concept ListOfClasses = requires(T& list) {
  list.begin();
  list.end();
}
&&std::is_class_v<typename T::value_type>;
template <class T>
concept PointsAtClass = std::is_class_v<T> && requires(T& optional) {
  optional.has_value();
  *optional;
};
template <class T>
concept HasFields = requires(T& value) {
  value.fields();
};
template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

// Whether each_tensor() finds all tensors in such a value.
template <class T>
constexpr bool shows_tensors() {
  if constexpr (std::is_same_v<T, Tensor> || !std::is_class_v<T>) {
    return true;
  } else if constexpr (HasFields<T>) {
    return shows_tensors<decltype(std::declval<T&>().fields())>();
  } else if constexpr (TupleLike<T>) {
    return []<std::size_t... i>(std::index_sequence<i...>) {
      return (shows_tensors<std::remove_cvref_t<std::tuple_element_t<i, T>>>() && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (PointsAtClass<T> || ListOfClasses<T>) {
    return shows_tensors<std::remove_cvref_t<typename T::value_type>>();
  } else {
    return requires { typename T::value_type; };  // a list of numbers, a text
  }
}
template <class T>
concept ShowsTensors = shows_tensors<T>();

// f(tensor) for each tensor in a value of these kinds, in order.
template <class T, class F>
void each_tensor(T& value, F&& f) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, Tensor>) {
    f(value);
  } else if constexpr (HasFields<T>) {
    const auto fields = value.fields();
    std::apply([&](auto&... each) { (each_tensor(each, f), ...); }, fields);
  } else if constexpr (TupleLike<Plain>) {
    std::apply([&](auto&... each) { (each_tensor(each, f), ...); }, value);
  } else if constexpr (PointsAtClass<T>) {
    if (value.has_value()) each_tensor(*value, f);
  } else if constexpr (ListOfClasses<Plain>) {
    for (auto& each : value) each_tensor(each, f);
  }
}

}  // namespace peal::nn
