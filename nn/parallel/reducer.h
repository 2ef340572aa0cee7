// SPDX-License-Identifier: Apache-2.0
// Reducer: the machinery of DDP. When all gradients of a bucket are complete, the communication
// hook sends it, strictly in plan order, while backward goes on; when backward has visited
// everything, the reducer waits for what is still under way.
//
// Each synchronised backward is a step, and has a number. It is part of what ranks must agree on
// (comm/group/label.h), and so is how many forwards were called and through which of them the step
// goes: a rank that left out a backward never has its gradients averaged with another step's, all
// get an Error. Only calls count, not how long a rank keeps what they gave.
//
// A parameter that got no gradient is an Error in the same step, by name, and on every rank: they
// finish the step's sums first, and so they can go on. On the CPU a flag tells them that travels in
// the last bucket, or beside those of a hook; on devices, for whose sums the host does not wait, a
// word of what the graph shows when backward begins. Where no flag can be, with a hook that
// averages over a part of the ranks or sends nothing, whose steps are not to meet all of them, in a
// captured step, and where a recomputed segment leaves out what it had before, the group is of no
// further use. With `find_unused_parameters` there is no such Error (unused.h): those that the
// graph of a backward does not reach are taken for unused when it begins, others when it ends. With
// `static_graph` each backward is to be as the first was, on the same rank: what was unused there
// is so from the start, a parameter whose gradient came in several parts (uses in several
// recomputed segments) is complete after as many, and anything else is an Error. Without it, one
// that gets another part when its bucket has gone is an Error.
//
// Layers may have collectives of their own over the group (synchronised batch norm, announce.h).
// With either option, of any wrapper that the backward goes through, ranks come to these and to
// their gradients in other orders. So the steps of all wrappers begin before whichever comes first,
// and with such an option a bucket whose gradients are complete at other times on some ranks waits
// for the end of backward.
//
// The plan can be exchanged when a step begins, by all ranks alike (planning.h says when):
// gradients that are there move along. Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/bucket_plan.h>
#include <peal/nn/parallel/comm_hook.h>
#include <peal/nn/parallel/grad_buckets.h>
#include <peal/nn/parallel/left_gradients.h>
#include <peal/nn/parallel/sample_weights.h>
#include <peal/nn/parallel/unused.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

class StepClock;

struct ReducerOptions {
  bool find_unused_parameters = false;
  bool static_graph = false;
};

class Reducer {
 public:
  // `plan` is of these parameters, and the same on all ranks, as the options are. `tag` tells this
  // reducer's collectives from those of others over the group. Communicates nothing.
  Reducer(NamedTensors parameters, std::vector<Bucket> plan, comm::ProcessGroup group,
          std::uint64_t tag = 0, const ReducerOptions& options = {});
  // Gives parameters gradients of their own again. Communicates nothing.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // While false, backward only accumulates.
  void set_synchronizing(bool on) { synchronizing_ = on; }
  bool synchronizing() const { return synchronizing_; }

  // In the place of the average. Not where a backward has sent buckets. Errors: then, no hook, and
  // buckets with owners.
  void set_comm_hook(CommHook hook);
  bool has_comm_hook() const { return hook_ != nullptr; }
  // Called when a synchronised backward begins, first where the plan may be exchanged; and when its
  // gradients are there.
  struct Listener {
    std::function<void()> prepare, begin, end;
  };
  // One at a time: it takes the place of the one before.
  void set_listener(Listener listener) { listener_ = std::move(listener); }
  // Takes the times of steps from now on.
  void set_clock(std::unique_ptr<StepClock> clock);
  StepClock* clock() const { return step_clock_.get(); }  // null: nothing is measured
  // On all ranks: layers have collectives of their own over the group from now on, forwards' and
  // backwards'.
  void set_layers_meet() { layers_meet_ = true; }
  // A backward is under way that will come to gradients, and their step has not begun.
  bool awaits() const;
  // It begins now, before the collective of that layer; or, of none, before another wrapper's step.
  // REQUIRES: awaits().
  void begin_before(std::string_view layer);
  // The outputs of a synchronised forward, of any shapes.
  void note_forward(const Tensors& outputs);

  // Instead of loss.backward(), where the loss is a mean over `samples`: the step gives the sum of
  // gradients over the ranks, and over backwards without communication before it, divided by the
  // sum of samples. The gradients of other leaves are those of loss.backward(); `others` are some
  // which the graph may not show. The same on all ranks. Errors: as of SampleWeights::weigh(); a
  // loss that goes through another reducer.
  void backward(const Tensor& loss, double samples, const std::vector<Tensor>& others = {});
  // Ranks without a batch (join.h): what the average is divided by, and what one of them does where
  // the others are in the place that is announced.
  void divide_by(int ranks) { divisor_ = ranks; }
  void follow(const Announcement& where);
  // Where this rank is, for those who follow.
  Announcement place(Announcement::What what) const;

  // Another plan, of the same parameters or of others. The same on all ranks, which allocate memory
  // together. In prepare(), or between backwards. Where it fails on one rank the group is of no
  // further use.
  void exchange(std::vector<Bucket> plan);
  void exchange(NamedTensors parameters, std::vector<Bucket> plan);
  // Whether the parameter is one of its own, or watched.
  bool has(const Tensor& parameter) const;
  // Error where an exchange has failed: the reducer then averages nothing any more.
  void check_whole() const;
  // This rank has no batch in the step under way.
  bool following() const { return following_; }
  // A parameter that is none of the reducer's begins a step as those do, in which it may become
  // one.
  void watch(const Tensor& stranger);

  // The plan of now, and a trained parameter, by its number there.
  const std::vector<Bucket>& buckets() const { return plan_; }
  const Tensor& parameter(int number) const {
    return parameters_[static_cast<std::size_t>(number)].second;
  }
  // The parameters, by number, in the order in which the last parts of their gradients came in the
  // last backward that communicated; on a rank without a batch none.
  std::vector<int> arrival() const;
  // Of the last backward.
  std::uint64_t step() const { return steps_; }
  const std::string& step_name() const { return step_; }  // "step 3", for messages
  // Seconds, since the last reset, in which this rank did nothing but wait for gradients.
  double exposed_seconds() const { return exposed_seconds_; }
  // Counts them from 0.
  void reset_times() { exposed_seconds_ = 0; }

 private:
  // Of a parameter, in the backward under way.
  // Unseen: nothing, and the graph shows no way to it.
  enum class Came : std::uint8_t { nothing, unseen, zeros, all };
  struct Flight {
    std::size_t waiting = 0;  // gradients not yet complete
    comm::Work work;
  };
  // A forward, by its place among the calls, and where a backward goes through it.
  struct Forward {
    std::uint64_t number;
    std::vector<std::weak_ptr<Node>> nodes;
    bool gone() const;  // no backward will go through it
  };
  static constexpr std::size_t nowhere = ~std::size_t{0};
  static std::vector<std::size_t> buckets_by_parameter(std::size_t parameters,
                                                       const std::vector<Bucket>& plan);
  void on_complete(std::size_t parameter);
  void end_weights(std::size_t first);
  [[noreturn]] void fail_shared_weights() const;
  void fail_without_model() const;
  void note_own(std::size_t first);
  bool given_up(std::size_t first, bool otherwise) const;
  void begin_without_batch(bool weighted);
  void leave_out_shared();
  void check_not_left() const;
  std::size_t begin_all(std::size_t first);
  void begin(std::string_view layer = {});
  void prepare();
  std::size_t place_of(const Tensor& parameter) const;
  void unwatch();
  void take_complete(std::size_t first);
  void number_step();
  void name_step();
  void open();
  std::uint64_t tag_of(std::size_t bucket) const;
  void expect_unused(std::size_t first);
  void hold_buckets(std::size_t first, std::string_view layer = {});
  void agree_when(std::size_t first, std::string_view where);
  bool counts(std::size_t parameter, std::size_t bucket);
  void stand_in(std::size_t parameter);
  void launch_ready();
  void launch();
  comm::Work reduce_to_owner(std::size_t bucket, const comm::Label& label);
  void check_not_on_top(std::size_t bucket) const;
  void watch_left();
  void finish();
  void close();
  void scale();
  bool first_of_static() const { return options_.static_graph && expected_.empty(); }
  bool is_missing(std::size_t parameter) const;
  std::vector<bool> missing() const;
  [[noreturn]] void fail_alone() const;
  void check_missing();
  bool averages_over_all();
  bool flag_goes_alone();
  void ask_missing(std::size_t first);
  bool any_suspicion();
  void note_hidden();
  void complete_rest();
  bool agrees_unused() const {
    return options_.static_graph ? !agreed_ : options_.find_unused_parameters;
  }
  bool may_be_unused(std::size_t bucket) const;
  void settle_unused();
  std::string advice() const;
  [[noreturn]] void fail_part(std::size_t parameter, std::size_t bucket) const;

  NamedTensors parameters_;
  std::vector<Bucket> plan_;
  std::vector<std::size_t> bucket_of_;  // by parameter; of frozen ones none
  comm::ProcessGroup group_;
  std::uint64_t tag_;
  ReducerOptions options_;
  CommHook hook_;                                                      // none: the average
  const std::shared_ptr<const void> self_ = std::make_shared<char>();  // for hooks
  Listener listener_;
  std::vector<Flight> flights_;  // by bucket
  std::vector<Came> came_;       // by parameter, in this backward
  Unused unused_;
  std::vector<Tensor> watched_;         // strangers, numbered behind the parameters
  std::vector<std::size_t> newcomers_;  // parameters that this step's beginning has brought
  std::vector<std::int64_t> parts_;     // by parameter: how many its gradient had in this backward
  std::vector<std::int64_t> expected_;  // and in the first; empty before its end
  bool agreed_ = false;                 // with static_graph, for good: which ones any rank uses
  bool layers_meet_ = false;            // some have, since there is this reducer
  std::vector<std::size_t> disputed_;   // parameters that are complete at other times on some ranks
  // With static_graph: they are these in the next step alone; and from now on.
  bool foreseen_ = false, settled_ = false;
  std::vector<std::size_t> held_;  // buckets that wait for the end of backward therefore
  std::vector<bool> hidden_;       // got gradients though no graph had shown them
  LeftGradients left_;             // of this rank's own
  std::vector<bool> shown_;        // by the graph of this backward; empty: nobody looked
  bool suspects_ = false;          // that a gradient will be missing here
  Tensor suspected_;               // and whether any rank does, when asked_ is over
  comm::Work asked_;
  bool learnt_ = false;                 // there was a step, which would have hidden some
  std::vector<Forward> forwards_;       // that a backward may still go through for the first time
  std::uint64_t forward_calls_ = 0;     // synchronised forwards
  std::uint64_t without_backward_ = 0;  // of these, yet
  std::uint64_t steps_ = 0;             // synchronised backwards
  std::uint64_t step_hash_ = 0;         // of the calls that led to the step under way, 0: captured
  SampleWeights weights_;
  int divisor_;
  bool following_ = false;  // this rank has no batch in the step under way
  // The gradients that are there are what a step left, the same on all ranks; and this rank's own
  // were added since.
  bool shared_ = false, added_ = false;
  std::size_t next_ = 0;        // the bucket to launch next
  std::uint64_t backward_ = 0;  // the one under way (tape.h), 0: none
  // The last one before the step that may come: a gradient from before it, of a parameter that
  // joins, is no use of the step.
  std::uint64_t before_step_;
  Tensor came_first_;  // whose gradient begins it, in the meantime
  bool synchronizing_ = true;
  bool captured_ = false;  // the backward under way lies in a graph: nothing was sent
  std::string step_;       // "step 3", as labels have it
  std::string text_;       // of the last label
  double exposed_seconds_ = 0;
  std::uint64_t clock_ = 0;             // counts parts of gradients
  std::vector<std::uint64_t> arrived_;  // by parameter: when the last part came; 0: none did
  std::unique_ptr<StepClock> step_clock_;
  const GradBuckets::Complete complete_;
  std::optional<GradBuckets> buckets_;  // the last: its hooks call the rest
};

}  // namespace peal::nn
