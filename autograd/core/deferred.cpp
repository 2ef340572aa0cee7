// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/error.h>

#include <memory>

namespace peal {
namespace {

std::size_t bytes_wanted(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(shape.numel()) * size_of(dtype);
}

Tensor looking_at(StorageRef storage, std::int64_t at, const Shape& shape, DType dtype) {
  auto body = std::make_shared<TensorBody>();
  body->storage = std::move(storage);
  body->at = at;
  body->shape = shape;
  body->dtype = dtype;
  return Tensor(std::move(body));
}

// Writing down is over, whatever the thread is in the middle of.
class Plainly {
 public:
  Plainly() : before_(context()) {
    context().defer_init = false;
    context().grad_enabled = false;
    context().autocast.reset();
  }
  ~Plainly() {
    context().defer_init = before_.defer_init;
    context().grad_enabled = before_.grad_enabled;
    context().autocast = before_.autocast;
  }
  Plainly(const Plainly&) = delete;
  Plainly& operator=(const Plainly&) = delete;

 private:
  const Context before_;
};

void make(const StorageRef& storage) {
  const std::shared_ptr<DeferredValues> values = storage->deferred();
  if (!values) return;
  const Plainly guard;
  storage->set_deferred(nullptr);
  try {
    storage->regain();
    for (const auto& [at, shape, dtype, fill] : values->writes) {
      fill(looking_at(storage, at, shape, dtype));
    }
  } catch (...) {
    storage->drop();
    storage->set_deferred(values);
    throw;
  }
}

// Somebody wants to read it.
void read_early(const StorageRef& storage) {
  const std::shared_ptr<DeferredValues>& values = storage->deferred();
  PEAL_CHECK(values, "storage: its ", storage->bytes(),
             " bytes are dropped; regain() them before use");
  if (context().defer_init) return make(storage);
  const bool known = !values->name.empty();
  fail(concat(known ? values->name : concat("a tensor of ", storage->bytes(), " bytes"),
              " has no values yet: it was made within init_empty_weights() or a DeferInit; ",
              known ? "call nn::materialize_module() of the model, wrap it "
                      "(FullyShardedDataParallel makes its values unit by unit) or load a "
                      "checkpoint into it before values are used"
                    : "it is no parameter of a module, so neither a wrapper nor a checkpoint gives "
                      "it any: let add_buffer() have it, call materialize(tensor), or make it "
                      "outside of the scope"));
}

Tensor without_values(std::size_t bytes, const Shape& shape, DType dtype, Device device,
                      std::int64_t at, std::shared_ptr<DeferredValues> values) {
  const auto own = std::make_shared<std::weak_ptr<Storage>>();
  StorageRef storage = Storage::without_bytes(bytes, device, [own] { read_early(own->lock()); });
  *own = storage;
  storage->set_deferred(std::move(values));
  return looking_at(std::move(storage), at, shape, dtype);
}

bool is_all_of_it(const Tensor& x) {
  return bytes_wanted(x.shape(), x.dtype()) == x.storage()->bytes();
}

// What is copied within one storage is there when its turn comes.
bool defer_copy_within(const Tensor& to, const Tensor& from) {
  if (is_all_of_it(to)) return true;  // onto itself
  return defer_write(
      to, [at = from.body().at, shape = from.shape(), dtype = from.dtype()](const Tensor& x) {
        x.copy_(looking_at(x.storage(), at, shape, dtype));
      });
}

// A list that keeps a list that keeps others, several times each: making them would take twice as
// long with each copy. And for each part of a tensor the whole of it would be made.
bool is_long_to_make(const Tensor& to, const Tensor& from) {
  return from.storage()->deferred()->copies ||
         (to.storage()->deferred()->copies && !is_all_of_it(from));
}

}  // namespace

bool is_deferred(const Tensor& x) { return x.storage()->deferred() != nullptr; }

void materialize(const Tensor& x) { make(x.storage()); }

Tensor unwritten_copy(const Tensor& x) {
  return without_values(x.storage()->bytes(), x.shape(), x.dtype(), x.device(), x.body().at,
                        std::make_shared<DeferredValues>(*x.storage()->deferred()));
}

Tensor materialized(const Tensor& x) {
  if (!is_deferred(x)) return x.detach().clone();
  const Tensor copy = unwritten_copy(x);
  materialize(copy);
  return copy;
}

Tensor empty_or_deferred(const Shape& shape, DType dtype, Device device) {
  const Context& here = context();
  const bool now = !here.defer_init || here.graph != nullptr || shape.numel() == 0;
  if (now) return Tensor::empty(shape, dtype, device);
  return without_values(bytes_wanted(shape, dtype), shape, dtype, device, 0,
                        std::make_shared<DeferredValues>());
}

Tensor deferred_tensor(const Shape& shape, DType dtype, Device device, Fill fill) {
  auto values = std::make_shared<DeferredValues>();
  values->writes.push_back({0, shape, dtype, std::move(fill)});
  return without_values(bytes_wanted(shape, dtype), shape, dtype, device, 0, std::move(values));
}

bool defer_write(const Tensor& x, Fill fill) {
  const std::shared_ptr<DeferredValues>& values = x.storage()->deferred();
  if (!values) return false;
  if (is_all_of_it(x)) {  // nobody will have seen them
    values->writes.clear();
    values->copies = false;
  }
  values->writes.push_back({x.body().at, x.shape(), x.dtype(), std::move(fill)});
  return true;
}

bool defer_copy(const Tensor& to, const Tensor& from) {
  if (!is_deferred(to)) return false;
  if (to.storage() == from.storage()) return defer_copy_within(to, from);
  if (is_deferred(from) && is_long_to_make(to, from)) materialize(from);
  if (is_deferred(from)) {
    defer_write(
        to, [values = unwritten_copy(from)](const Tensor& x) { x.copy_(materialized(values)); });
    if (!is_all_of_it(to)) to.storage()->deferred()->copies = true;
    return true;
  }
  if (is_all_of_it(to)) {    // what would be made is overwritten
    from.raw();              // Error where it cannot be read
    to.storage()->regain();  // may throw: then it is as before
    to.storage()->set_deferred(nullptr);
  } else {
    materialize(to);
  }
  return false;
}

bool take_over(const Tensor& to, const Tensor& from) {
  const Storage& theirs = *from.storage();
  const bool fits = is_deferred(to) && is_all_of_it(to) && !is_deferred(from) &&
                    is_all_of_it(from) && theirs.owned() && theirs.has_bytes() &&
                    to.dtype() == from.dtype() && to.shape() == from.shape() &&
                    to.device() == from.device();
  if (!fits) return false;
  to.storage()->set_deferred(nullptr);
  to.storage()->take_bytes(*from.storage());
  return true;
}

}  // namespace peal
