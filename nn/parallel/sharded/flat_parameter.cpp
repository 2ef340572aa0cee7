// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/sharded/flat_parameter.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

namespace peal::nn {
namespace {

// A flat tensor without bytes, and what whoever reads it then is told.
Tensor without_bytes(std::int64_t count, DType dtype, Device device, std::string why) {
  auto body = std::make_shared<TensorBody>();
  body->storage = Storage::without_bytes(static_cast<std::size_t>(count) * size_of(dtype), device,
                                         [why = std::move(why)] { fail(why); });
  body->shape = {count};
  body->dtype = dtype;
  return Tensor(std::move(body));
}

std::string where_to_read(const std::string& names, bool mixed) {
  return concat("[fsdp] ", names,
                " are sharded, and not gathered here: call the model through its wrapper, and its ",
                "parts as `fc(x)`, not `fc.forward(x)` (a hook that reads them comes behind the "
                "wrapper's), take or load the ",
                "wrapper's state_dict(), load files by nn::load_sharded(), or read them within ",
                "summon_full_parameters(); an ",
                "optimizer is to have the wrapper's local_parameters()",
                mixed ? "; with param_dtype a forward and its backward are both within "
                        "summon_full_parameters(), or both outside"
                      : "");
}

// Of a parameter, as its gradient is kept.
Tensor zero_gradient(const Tensor& parameter) {
  return Tensor::zeros(parameter.shape(), parameter.grad_slot().dtype(), parameter.device());
}

}  // namespace

FlatParameter::FlatParameter(FlatPlan plan, const NamedTensors& parameters, ShardGroups groups,
                             const MixedPrecision& precision, bool on_host,
                             const std::function<void()>& complete)
    : plan_(std::move(plan)), groups_(std::move(groups)), complete_(complete) {
  for (const auto& entry : plan_.entries) {
    const auto& [name, tensor] = parameters[static_cast<std::size_t>(entry.parameter)];
    names_ += concat(names_.empty() ? "" : ", ", name);
    own_.push_back({this, tensor});
  }
  const bool mixed = is_floating(plan_.dtype);
  const DType masters = plan_.dtype;
  const DType computes = mixed ? precision.param_dtype.value_or(masters) : masters;
  const DType travels = mixed ? precision.travels_in().value_or(masters) : masters;
  const Device device = own_.front().parameter.device();
  const std::int64_t count = plan_.chunk * groups_.shards.world();
  const std::string where = where_to_read(names_, computes != masters);
  whole_.memory = without_bytes(count, masters, device, where);
  if (computes != masters) other_.memory = without_bytes(count, computes, device, where);
  gradient_ = without_bytes(
      count, travels, device,
      concat("[fsdp] the gradients of ", names_, " are reduced, and each rank has its part: those ",
             "of local_parameters(), which an optimizer is to have; clip by the wrapper's ",
             "clip_grad_norm_(), and give a GradScaler the group"));
  // What it was a piece of (tensor parallel) it is while it is whole here, too.
  const bool cut = std::any_of(own_.begin(), own_.end(),
                               [](const Own& own) { return own.parameter.storage()->is_piece(); });
  for (const Whole* each : {&whole_, &other_}) {
    if (cut && each->memory.defined()) each->memory.storage()->mark_piece();
  }
  const bool apart = on_host && device != Device{};  // page-locked, as it goes to and fro
  chunk_ = apart ? Tensor::pinned({plan_.chunk}, masters)
                 : Tensor::empty({plan_.chunk}, masters, device);
  chunk_.zero_();
  chunk_.storage()->mark_piece();
  for (std::size_t e = 0; e < own_.size(); ++e) {
    const Tensor& parameter = own_[e].parameter;
    const Piece piece = piece_of(plan_, plan_.entries[e], parameter.numel(), groups_.shards.rank());
    const Tensor mine = chunk_.detach({piece.count}, piece.at);
    if (piece.count > 0) mine.copy_(parameter.detach({piece.count}, piece.first));
    if (plan_.trained) mine.set_requires_grad();
    pieces_.emplace_back(parameters[static_cast<std::size_t>(plan_.entries[e].parameter)].first,
                         mine);
  }
  look();
  turn(false);
  if (!plan_.trained) return;
  for (std::size_t e = 0; e < own_.size(); ++e) {
    const Tensor& parameter = own_[e].parameter;
    GradSlot& slot = parameter.grad_slot();
    slot.keep_in(travels, computes != masters || travels != masters);
    slot.place(gradient_.detach(parameter.shape(), plan_.entries[e].at));
    slot.set_final_hook([own = &own_[e]](const Tensor&) { own->flat->note(*own); });
  }
}

FlatParameter::~FlatParameter() {
  // Their memory goes; an exception may have left them under way.
  for (const comm::Work* work : {&gathering_, &reducing_}) {
    try {
      work->wait();
    } catch (const std::exception&) {  // failed, and so over
    }
  }
  turn(true);
  whole().drop();  // what a step that failed has left there
  for (const Own& own : own_) {
    if (!plan_.trained) continue;
    GradSlot& slot = own.parameter.grad_slot();
    slot.remove_final_hook();
    slot.clear();
    slot.keep_in(plan_.dtype, false);
  }
}

void FlatParameter::look() {
  for (std::size_t e = 0; e < own_.size(); ++e) {
    const Tensor& parameter = own_[e].parameter;
    parameter.body().dtype = whole_.memory.dtype();
    parameter.rebind(whole_.memory.detach(parameter.shape(), plan_.entries[e].at));
  }
}

void FlatParameter::turn(bool to_masters) {
  const bool there = (whole_.memory.dtype() == plan_.dtype) == to_masters;
  if (!other_.memory.defined() || there) return;
  std::swap(whole_, other_);
  look();
}

void FlatParameter::gather(const comm::Label& label) {
  const NoGrad guard;
  const std::uint64_t now = chunk_.storage()->version();
  whole().regain();  // where it throws, nothing is gathered
  unchanged_ = whole_.gathered_at == now;
  whole_.gathered_at = now;
  in_flight_ = true;
  if (plan_.chunk == 0) return;
  // The host waits for the copy: the next to write the chunk is an optimizer there.
  sent_ = cast(chunk_.to(whole_.memory.device()), whole_.memory.dtype());
  gathering_ = groups_.shards.all_gather(whole_.memory.view(), sent_.view(), label);
}

void FlatParameter::wait() {
  if (!std::exchange(in_flight_, false)) return;
  std::exchange(gathering_, {}).wait();
  sent_ = {};
  if (unchanged_) whole().restored();
  whole_.at = whole().version();
}

void FlatParameter::free() {
  wait();
  if (plan_.chunk > 0 && whole().has_bytes() && whole().version() != whole_.at) {
    fail_everywhere(groups_.all,
                    concat("a forward or a backward wrote into ", names_,
                           ", of which each rank keeps a part, so that what it wrote is lost "
                           "(Embedding's max_norm, or clamping): write between steps, within "
                           "summon_full_parameters() or into local_parameters()"),
                    "fsdp");
  }
  whole().drop();
}

void FlatParameter::abandon() {
  try {
    wait();
  } catch (const std::exception&) {  // failed, and so over
  }
  sent_ = {};
  whole().drop();
}

void FlatParameter::write_back() {
  if (plan_.chunk == 0 || whole().version() == whole_.at) return;
  chunk_.copy_(whole_.memory.detach({plan_.chunk}, plan_.chunk * groups_.shards.rank()));
  whole_.gathered_at = chunk_.storage()->version();
  whole_.at = whole().version();
}

std::string FlatParameter::changed() const {
  std::string text;
  for (std::size_t e = 0; e < own_.size(); ++e) {
    if (own_[e].parameter.requires_grad() == plan_.trained) continue;
    text += concat(text.empty() ? "" : ", ", pieces_[e].first);
  }
  return text;
}

void FlatParameter::note(Own& own) {
  if (!std::exchange(own.came, true)) ++came_;
  complete_();
}

void FlatParameter::begin_backward() {
  came_ = 0;
  for (Own& own : own_) own.came = false;
  reconcile();
}

void FlatParameter::reconcile() {
  if (gradients_ == Gradients::none) return;
  for (std::size_t e = 0; e < own_.size(); ++e) {
    GradSlot& slot = own_[e].parameter.grad_slot();
    const Tensor& piece = pieces_[e].second;
    if (slot.defined() && piece.grad_slot().defined()) continue;
    slot.clear();
    piece.zero_grad();
    own_[e].aside = {};
  }
  if (has_some()) return;
  gradient_.storage()->drop();
  gradients_ = Gradients::none;
}

bool FlatParameter::has_some() const {
  return std::any_of(own_.begin(), own_.end(),
                     [](const Own& own) { return own.parameter.grad_slot().defined(); });
}

void FlatParameter::close_gradients() {
  if (gradients_ != Gradients::whole) return;
  gradients_ = Gradients::none;
  for (std::size_t e = 0; e < own_.size(); ++e) {
    if (!pieces_[e].second.grad_slot().defined()) continue;
    const Tensor& whole = own_[e].parameter;
    whole.grad_slot().accumulate(zero_gradient(whole));
    gradients_ = Gradients::reduced;
  }
  gradient_.storage()->drop();
}

void FlatParameter::open_gradients() {
  if (gradients_ == Gradients::whole) return;
  for (const Own& own : own_) own.parameter.grad_slot().clear();
  gradient_.storage()->regain();
  const std::int64_t padding = plan_.chunk * groups_.shards.world() - plan_.count;
  if (padding > 0) gradient_.detach({padding}, plan_.count).zero_();
  gradients_ = Gradients::whole;
}

std::string FlatParameter::missing() const {
  std::string text;
  for (std::size_t e = 0; e < own_.size(); ++e) {
    if (!own_[e].parameter.grad_slot().defined())
      text += concat(text.empty() ? "" : ", ", pieces_[e].first);
  }
  return text;
}

void FlatParameter::reduce(const comm::Label& label) {
  if (plan_.chunk == 0) return;
  const View all = gradient_.view();
  const View mine = all.part(plan_.chunk * groups_.shards.rank(), plan_.chunk);
  reducing_ = groups_.shards.reduce_scatter(mine, all, comm::ReduceOp::avg, label);
}

void FlatParameter::settle(const comm::Label& label) {
  const NoGrad guard;
  std::exchange(reducing_, {}).wait();
  if (plan_.chunk == 0 || !groups_.replicas) return;
  reduced_ = gradient_.detach({plan_.chunk}, plan_.chunk * groups_.shards.rank()).clone();
  gradient_.storage()->drop();
  gradients_ = Gradients::reduced;
  reducing_ = groups_.replicas.all_reduce(reduced_.view(), comm::ReduceOp::avg, label);
}

void FlatParameter::finish() {
  const NoGrad guard;
  std::exchange(reducing_, {}).wait();
  const Tensor apart = std::exchange(reduced_, {});
  const Tensor& from = apart.defined() ? apart : gradient_;
  const std::int64_t mine = apart.defined() ? 0 : plan_.chunk * groups_.shards.rank();
  for (std::size_t e = 0; e < own_.size(); ++e) {
    const Tensor& piece = pieces_[e].second;
    const Tensor before = piece.grad_slot().grad();
    if (before.defined() && !before.storage()->has_bytes()) piece.zero_grad();  // keep()'s
    if (own_[e].aside.defined()) piece.grad_slot().accumulate(std::exchange(own_[e].aside, {}));
    piece.grad_slot().accumulate(
        cast(from.detach(piece.shape(), mine + piece.body().at), piece.dtype()).to(piece.device()));
  }
  if (apart.defined()) return;
  gradient_.storage()->drop();
  gradients_ = Gradients::reduced;
}

// The parameters and the pieces have gradients alike, so that zero_grad() of either is seen.
void FlatParameter::keep() {
  if (gradients_ != Gradients::whole) return;
  for (std::size_t e = 0; e < own_.size(); ++e) {
    const Tensor &whole = own_[e].parameter, &piece = pieces_[e].second;
    const bool there = whole.grad_slot().defined();
    bool kept = piece.grad_slot().defined();
    if (there && kept && piece.numel() > 0 && piece.grad().storage()->has_bytes()) {
      own_[e].aside = piece.grad();
      piece.zero_grad();
      kept = false;
    }
    if (there && !kept) {
      piece.grad_slot().accumulate(without_bytes(
          piece.numel(), piece.dtype(), piece.device(),
          concat("[fsdp] the gradient of ", pieces_[e].first,
                 " is not averaged yet: the last backward was under no_sync(); the next one that "
                 "is not averages the sum, or zero_grad() drops it")));
    }
    if (kept && !there) whole.grad_slot().accumulate(zero_gradient(whole));
  }
}

}  // namespace peal::nn
