// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/recorded.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/tensor.h>

#include <atomic>
#include <utility>

namespace peal {
namespace {

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(shape.numel()) * size_of(dtype);
}

// A device's own order is enough for copies within it; the host waits for those that it takes part
// in.
void copy_bytes(const Tensor& dst, const Tensor& src, bool non_blocking) {
  const bool within = dst.device() == src.device();
  const Device device = dst.device().type == DeviceType::cpu ? src.device() : dst.device();
  memory_space(device).copy(dst.raw(), dst.device(), src.raw(), src.device(),
                            bytes_of(dst.shape(), dst.dtype()), !within && !non_blocking);
}

// The tape's, from the first tensor that wants a gradient on.
std::atomic<Record> recorder{nullptr};
std::atomic<RecordedAs> name_of_node{nullptr};

// Zeros but for the rows from `begin` on, which are g's.
Tensor among_zeros(const Tensor& g, const Shape& whole, std::int64_t begin) {
  const std::int64_t end = begin + g.size(0);
  const Tensor all = Tensor::zeros(whole, g.dtype(), g.device());
  all.rows(begin, end).copy_(g.detach());
  return recorded("rows", all, g, [begin, end](const Tensor& gg) { return gg.rows(begin, end); });
}

}  // namespace

void set_record(Record record, RecordedAs name) {
  name_of_node.store(name, std::memory_order_release);
  recorder.store(record, std::memory_order_release);
}

std::string_view recorded_as(const Tensor& x) {
  if (x.is_leaf()) return {};
  return name_of_node.load(std::memory_order_acquire)(*x.body().node);
}

Tensor recorded(std::string_view op, const Tensor& y, const Tensor& x,
                std::function<Tensor(const Tensor& g)> backward) {
  if (!context().grad_enabled || !x.requires_grad()) return y;
  return recorder.load(std::memory_order_acquire)(op, y, x, std::move(backward));
}

TensorBody& Tensor::body() const {
  if (body_ == nullptr) {
    const std::string_view op = OpName::current();
    if (op.empty()) fail("tensor: used before it was given a value");
    const bool in_place = op.ends_with('_') || op.ends_with('=');
    fail(concat(op, ": a tensor was used before it was given a value",
                in_place ? ", as a grad() is before backward()" : ""));
  }
  return *body_;
}

Tensor::operator bool() const {
  PEAL_CHECK(defined(),
             "truth: a tensor without a value is neither true nor false; ask x.defined()");
  PEAL_CHECK(numel() == 1, "truth: whether a tensor of shape ", shape(),
             " is true depends on which element is asked; reduce it to one first, or ask "
             "x.defined()");
  return item<bool>();
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  auto body = std::make_shared<TensorBody>();
  body->storage = Storage::allocate(bytes_of(shape, dtype), device);
  body->shape = shape;
  body->dtype = dtype;
  return Tensor(std::move(body));
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor out = empty(shape, dtype, device);
  memory_space(device).zero(device, out.raw(), bytes_of(shape, dtype));
  return out;
}

Tensor Tensor::from_bytes(const void* data, std::int64_t count, DType dtype, const Shape& shape,
                          Device device) {
  PEAL_CHECK(count == shape.numel(), "tensor: shape ", shape, " holds ", shape.numel(),
             " elements, got ", count, " values");
  Tensor out = empty(shape, dtype, device);
  memory_space(device).copy(out.raw(), device, data, Device{}, bytes_of(shape, dtype), true);
  return out;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype,
                         std::function<void()> release) {
  auto body = std::make_shared<TensorBody>();
  body->storage = Storage::wrap(data, bytes_of(shape, dtype), Device{}, std::move(release));
  body->shape = shape;
  body->dtype = dtype;
  return Tensor(std::move(body));
}

Tensor Tensor::pinned(const Shape& shape, DType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  if (bytes == 0) return empty(shape, dtype, Device{});
  const std::shared_ptr<void> memory = allocate_pinned(bytes);
  if (!memory) return empty(shape, dtype, Device{});
  return from_blob(memory.get(), shape, dtype, [memory] {});
}

void Tensor::record_stream(const Stream& stream) const {
  if (stream.native() == nullptr || raw() == nullptr) return;
  const StorageRef& storage = this->storage();
  memory_space(device()).record_stream(device(), storage->data(), stream.native());
}

Tensor::operator View() const {
  PEAL_CHECK(
      !context().grad_enabled || !requires_grad() || is_leaf(), "a tensor of shape ", shape(),
      " that an operation made, and whose gradient is wanted, would be given to a collective "
      "or a message, which is not recorded; give its detach(), or call it under NoGrad, or one "
      "that has a gradient (nn::all_gather)");
  PEAL_CHECK(
      !storage()->is_copy() || numel() == 0, "a tensor of shape ", shape(),
      " that is a copy of another, or of a part of it, would be given to a collective or a "
      "message, and the other, which still lives, would not see what that writes. t, select, "
      "narrow and their like copy where they cannot share: give a clone() or contiguous() "
      "of the copy, and write what comes back where it belongs (x[{Slice(), 0}] = y)");
  return view();
}

void* Tensor::raw() const {
  const TensorBody& here = body();
  return here.storage->data() + here.at * static_cast<std::int64_t>(size_of(here.dtype));
}

void* Tensor::checked_data(DType dtype) const {
  PEAL_CHECK(body().dtype == dtype, "tensor: its elements are ", body().dtype, ", asked for as ",
             dtype);
  PEAL_CHECK(device().type == DeviceType::cpu, "tensor: data() reads CPU memory, this is on ",
             device(), "; use to(Device{}) first");
  return raw();
}

void Tensor::read_item(void* value, DType dtype) const {
  PEAL_CHECK(numel() == 1, "item: expected one element, got shape ", shape());
  const Tensor here = detach().to(Device{});
  visit(here.dtype(), [&]<class From>() {
    const From element = *here.data<From>();
    visit(dtype, [&]<class To>() {
      if constexpr (std::is_same_v<From, To>) {
        *static_cast<To*>(value) = element;
      } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) {
        *static_cast<To*>(value) = static_cast<To>(static_cast<float>(element));
      } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
        *static_cast<To*>(value) = To(static_cast<float>(element));
      } else {
        *static_cast<To*>(value) = static_cast<To>(element);
      }
    });
  });
}

Tensor Tensor::detach(const Shape& shape, std::int64_t at) const {
  PEAL_CHECK(at >= 0 && at + shape.numel() <= numel(), "detach: shape ", shape, " from element ",
             at, " does not fit in ", this->shape());
  auto detached = std::make_shared<TensorBody>();
  detached->storage = body().storage;
  detached->at = body().at + at;
  detached->shape = shape;
  detached->dtype = body().dtype;
  return Tensor(std::move(detached));
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  PEAL_CHECK(dim() > 0 && begin >= 0 && begin <= end && end <= size(0), "rows: [", begin, ", ", end,
             ") of shape ", shape());
  Shape part = shape();
  part[0] = end - begin;
  const std::int64_t row = size(0) == 0 ? 0 : numel() / size(0);
  const Tensor out = detach(part, begin * row);
  if (!requires_grad()) return out;
  return recorded("rows", out, *this, [whole = shape(), begin](const Tensor& g) {
    return among_zeros(g, whole, begin);
  });
}

Tensor Tensor::clone() const {
  Tensor out = empty(shape(), dtype(), device());
  copy_bytes(out, *this, false);
  return recorded("clone", out, *this, [](const Tensor& g) { return g; });
}

Tensor Tensor::to(Device device, bool non_blocking) const {
  if (device == this->device()) return *this;
  Tensor out = empty(shape(), dtype(), device);
  copy_bytes(out, *this, non_blocking);
  return recorded("to", out, *this,
                  [from = this->device()](const Tensor& g) { return g.to(from); });
}

Tensor Tensor::contiguous() const& { return storage()->is_copy() ? clone() : *this; }

Tensor Tensor::contiguous() const&& {
  if (!owned_alone()) return static_cast<const Tensor&>(*this).contiguous();
  storage()->mark_own();
  return *this;
}

void check_no_copy(std::string_view op, const Tensor& x) {
  if (!x.defined()) return;  // whoever uses it says so
  PEAL_CHECK(!x.storage()->is_copy() || x.numel() == 0, op, ": a tensor of shape ", x.shape(),
             " that is a copy of another, or of a part of it, would be written, and the other, "
             "which still lives, would not see it. slice, select, narrow, split, t, transpose, "
             "permute, expand, diagonal, unfold and x[{Slice(), 1}] copy where they cannot share: "
             "write the other itself (x *= 2, x[{Slice(), 1}] *= 2, x.copy_(y.t())), or a clone() "
             "or contiguous() of the copy; rows(begin, end) and reshape share storage");
}

void check_in_place(std::string_view op, const Tensor& x) {
  check_no_copy(op, x);
  PEAL_CHECK(!context().grad_enabled || !x.requires_grad() || x.is_leaf(), op,
             ": a tensor of shape ", x.shape(),
             " that an operation made, and whose gradient is wanted, would be written in place, "
             "which is not recorded; compute out of place, or write under NoGrad or to detach()");
}

void check_source(std::string_view op, const Tensor& source) {
  PEAL_CHECK(!context().grad_enabled || !source.requires_grad(), op, ": a tensor of shape ",
             source.shape(),
             ", whose gradient is wanted, would be written into another, which is not recorded; "
             "compute out of place, or write its detach()");
}

void check_temporary(std::string_view op, const Tensor& x) {
  check_no_copy(op, x);
  PEAL_CHECK(!x.owned_alone() || !x.storage()->owned(), op, ": a temporary of shape ", x.shape(),
             " that nobody else holds would be written, and the values lost: give it a name. "
             "rows(begin, end), reshape and detach share storage with a tensor");
}

void Tensor::copy_(const Tensor& source, bool non_blocking) const&& {
  check_temporary("copy_", *this);
  const Tensor& here = *this;
  here.copy_(source, non_blocking);
}

void Tensor::zero_() const&& {
  check_temporary("zero_", *this);
  const Tensor& here = *this;
  here.zero_();
}

void Tensor::copy_(const Tensor& source, bool non_blocking) const& {
  check_in_place("copy_", *this);
  check_source("copy_", source);
  PEAL_CHECK(source.shape() == shape() && source.dtype() == dtype(), "copy_: expected ", dtype(),
             " ", shape(), ", got ", source.dtype(), " ", source.shape());
  if (!defer_copy(*this, source)) copy_bytes(*this, source, non_blocking);
  body().storage->bump_version();
}

void Tensor::zero_() const& {
  check_in_place("zero_", *this);
  if (!defer_write(*this, [](const Tensor& x) { x.zero_(); })) {
    memory_space(device()).zero(device(), raw(), bytes_of(shape(), dtype()));
  }
  body().storage->bump_version();
}

void Tensor::rebind(const Tensor& where) const {
  PEAL_CHECK(where.shape() == shape() && where.dtype() == dtype(), "rebind: expected ", dtype(),
             " ", shape(), ", got ", where.dtype(), " ", where.shape());
  body().storage = where.storage();
  body().at = where.body().at;
}

}  // namespace peal
