// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cuda/broadcast.h>
#include <peal/autograd/kernels/cuda/element.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {

using functor::computed;

namespace {

// The op is the same for all threads: a branch that costs nothing beside memory.
template <class T>
struct Holds {
  Compare op;
  __device__ bool operator()(const T& left, const T& right) const {
    const auto a = static_cast<computed<T>>(left), b = static_cast<computed<T>>(right);
    switch (op) {
      case Compare::eq:
        return a == b;
      case Compare::ne:
        return a != b;
      case Compare::lt:
        return a < b;
      case Compare::le:
        return a <= b;
      case Compare::gt:
        return a > b;
      case Compare::ge:
        return a >= b;
    }
    return false;
  }
};

struct Choice {
  template <class E>
  __device__ E operator()(bool condition, const E& a, const E& b) const {
    return condition ? a : b;
  }
};

template <class To>
struct Converted {
  template <class From>
  __device__ To operator()(const From& x) const {
    return static_cast<To>(static_cast<computed<To>>(static_cast<computed<From>>(x)));
  }
};

}  // namespace

bool compare(Compare op, const Tensor& out, const Tensor& a, const Tensor& b) {
  visit(a.dtype(), [&]<class T>() { broadcast<bool, T, T>(Holds<T>{op}, out, a, b); });
  return true;
}

bool where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  with_element(size_of(out.dtype()),
               [&]<class E>() { broadcast<E, bool, E, E>(Choice{}, out, condition, a, b); });
  return true;
}

bool cast(const Tensor& out, const Tensor& x) {
  visit(x.dtype(), [&]<class From>() {
    visit(out.dtype(), [&]<class To>() {
      walk(out, out.numel(), Assigning<Converted<To>>{}, Out<To>{pointer<To>(out)},
           In<From>(pointer<From>(x)));
    });
  });
  return true;
}

}  // namespace peal::cuda
