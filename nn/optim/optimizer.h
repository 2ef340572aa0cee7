// SPDX-License-Identifier: Apache-2.0
// Optimizer: changes parameters along their gradients. A step makes one fused pass over each that
// has a gradient, in lists of those that step alike, so that a device has few launches and waits
// for none; one without a gradient (frozen, or not used) is left as it is, and so is its state.
// State is made at a parameter's first step.
//
// A parameter in f16 or bf16 would lose every update smaller than half the distance to its
// neighbour. So its state is f32 and has a master, the parameter in f32 (Micikevicius et al.,
// "Mixed precision training", ICLR 2018, section 3.1): the step is taken there, and the parameter
// becomes the master rounded. When somebody else wrote the parameter since, or a collective
// did, the whole master starts again from it, on the root of a broadcast too: replicas whose
// parameters were made equal have equal masters. After loading, only those elements of the master
// start again that do not round to the parameter's, so that a run goes on with the digits that it
// had. The same holds, except after a broadcast, of a parameter that is a part of a larger storage,
// whose other parts others may have written.
//
// Parameters come in groups, each with settings of its own, numbers by PyTorch's names:
//
//   nn::AdamW optimizer({{matrices, {.lr = 1e-3, .weight_decay = 0.1}}, {others, {.lr = 1e-3}}});
//   optimizer.set_setting("weight_decay", 0.05, 0);
//
// Made of model.named_parameters(), an optimizer saves its state by the parameters' names, and it
// can be loaded where they come in another order; of model.parameters(), by their numbers.
//
// A step may be part of a captured graph (core/graph.h; PyTorch: capturable), unless the
// optimizer's header says that it is made of operations. Each replay counts as a step and takes the
// settings that there are then, so schedules go on as ever. State must be there before: take a step
// or more first, as Graph's warm-up does.
//
// Thread safety: one thread at a time, the one that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/ops/optimizer.h>
#include <peal/nn/local_state.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal {
class Graph;
class StateReader;
}  // namespace peal

namespace peal::nn {

// What an optimizer trains: tensors by name (model.named_parameters()) or without (parameters()).
struct Parameters {
  std::vector<Tensor> tensors;
  std::vector<std::string> names;  // as many, or none
  // Those of a part of a model, whose other parts other ranks have (Pipe::parameters()): none here
  // is then no mistake (a stage of activations alone), otherwise it is an Error; and a GradScaler
  // asks all of them.
  bool part_of_model = false;

  Parameters(std::vector<Tensor> list) : tensors(std::move(list)) {}  // NOLINT: a conversion
  Parameters(std::initializer_list<Tensor> list) : tensors(list) {}   // NOLINT
  Parameters(const NamedTensors& named);                              // NOLINT
};

// What an optimizer is made of; `Options` are its own: SGDOptions, AdamOptions ...
template <class Options>
struct ParameterGroup {
  Parameters parameters;
  Options options;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual void step();
  // f() is run with gradients on, as PyTorch's closures: it calls zero_grad() and backward() and
  // gives the loss; then there is a step. Returns that loss. An optimizer that asks for the loss at
  // several places (LBFGS) runs it several times.
  virtual Tensor step(const std::function<Tensor()>& closure);
  // The parameters become those to train, or to be judged and saved; for most optimizers they are
  // the same ones (AdamWScheduleFree has others, and a setting "train_mode" that says which).
  virtual void train() {}
  virtual void eval() {}
  // Marks all gradients undefined. Memory of their own goes back; places in others' (DDP's buckets,
  // a captured graph) stay.
  void zero_grad();

  // Of all groups, in their order.
  const std::vector<Tensor>& parameters() const { return parameters_; }
  // Others in the place of the parameters, one for one, for an optimizer that was made before a
  // wrapper which keeps pieces of them (parallel/sharded/fsdp.h: local_parameters()). Names, groups
  // and settings stay. Errors, and nothing has changed: another number of them, a step that was
  // taken, and those of the constructor.
  void exchange_parameters(const std::vector<Tensor>& others);
  // As they were given, or their numbers.
  const std::vector<std::string>& parameter_names() const { return names_; }
  // Of the tensors that there are for that parameter once it has had a step, master included, on
  // the rank that steps it.
  std::int64_t state_bytes(std::size_t parameter) const;
  std::size_t group_count() const { return groups_.size(); }
  // Whether other ranks have gradients of the same model that this one has not, so that what goes
  // by all of them asks these ranks, too (Parameters::part_of_model;
  // parallel/sharded/sharded_ddp.h).
  virtual bool lacks_gradients() const { return part_of_model_; }
  // By name ("lr", "weight_decay", ...); Error that lists the names for another, and for a value
  // that makes no sense.
  double setting(std::string_view name, std::size_t group = 0) const;
  bool has_setting(std::string_view name) const;
  void set_setting(std::string_view name, double value, std::size_t group = 0);
  double lr(std::size_t group = 0) const { return setting("lr", group); }
  void set_lr(double lr);  // of all groups
  void set_lr(double lr, std::size_t group) { set_setting("lr", lr, group); }
  // What schedules start from: the group's rate when this was first asked for, which is when its
  // first schedule was made. It is saved, so a schedule made after loading goes on from it.
  double initial_lr(std::size_t group = 0);
  // The initial_lr where there is one, else the rate.
  double base_lr(std::size_t group = 0) const;
  // Another one; the group's rate stays in proportion to it, so a schedule goes on where it was.
  void set_base_lr(double lr, std::size_t group = 0);

  // What a resumed run needs to go on bit for bit: the settings of group number g as "groups.g.lr"
  // and so on, "groups.g.parameters" (how many) and, where there was a schedule,
  // "groups.g.initial_lr"; and for each parameter that has had a step, by its name or number,
  // "fc1.weight.step" and its tensors, "fc1.weight.exp_avg" for example, and "fc1.weight.master".
  // These share storage with the optimizer. Error where parameters are pieces of sharded ones,
  // whose state lies with all ranks (parallel/sharded/fsdp.h).
  virtual NamedTensors state_dict() const;
  // What of it this rank has.
  NamedTensors local_state_dict() const;
  // Whether "exp_avg" or "master", say, is what a tensor of state is called, and not a number.
  bool keeps_tensor(std::string_view state) const;
  // For state_dict() of an optimizer whose state lies with several ranks (parallel/sharded/
  // zero_redundancy_optimizer.h), before it, on all of them. Others have nothing to do.
  virtual void consolidate_state_dict(int /*to*/ = 0) {}
  // REQUIRES: made with the same parameters in the same groups, and in the same order unless they
  // have names. Takes settings and state; a parameter may come without tensors that its settings
  // want, which then start from zero. Parameters with names take a state by numbers too, in order.
  // Error that lists every key and shape that does not fit; then nothing has changed.
  virtual void load_state_dict(const NamedTensors& state);
  // This rank's part, for a sharded checkpoint: all, where no others have some. REQUIRES: the
  // optimizer outlives it.
  virtual LocalState local_state();

 protected:
  struct State {
    std::int64_t step = 0;
    std::vector<Tensor> tensors;  // by number of state; undefined where there is none
    std::vector<double> numbers;
    Tensor master;  // f32, of a parameter in low precision
    // The parameter's storage after the last step; none where there was no step since loading.
    struct Seen {
      std::weak_ptr<Storage> storage;
      std::uint64_t version, broadcasts;
    };
    std::optional<Seen> seen;
  };

  // A number that every group has, and what it may be.
  struct Setting {
    std::string_view name;
    double low = 0, high = std::numeric_limits<double>::infinity();  // from low to below high
  };
  // What an optimizer is called, and what it has.
  struct Names {
    std::string_view optimizer;
    std::vector<Setting> settings;  // the first is "lr"
    // Settings behind these that are 0 or 1. They are saved where they are 1, so that older states
    // load. "maximize" turns the gradients round, for every optimizer that names it.
    std::vector<std::string_view> flags;
    // Tensors that every parameter has after a step, and behind these such as settings or shapes
    // ask for. A step takes three at most.
    std::vector<std::string_view> states, states_at_times;
    // Numbers of a parameter beside its count of steps, and what they begin with.
    std::vector<std::pair<std::string_view, double>> numbers;
    // A step looks at several elements together, so that it needs whole parameters, not pieces.
    bool needs_whole = false;
  };

  // A derived constructor adds its groups.
  explicit Optimizer(Names names);

  // `settings` in the order of their names, flags included. Error for no parameters, unless others
  // have some (part_of_model), one that comes twice, a name that does, one that is not a leaf.
  void add_group(const Parameters& parameters, std::vector<double> settings);

  // Error for settings that make no sense; this one knows the limits that Names gives.
  virtual void check(std::span<const double> settings) const;
  // Of tensor number k of the state of a parameter of this shape: whether there is one, its shape,
  // and what it is filled with at first.
  virtual bool wants_state(std::size_t k, const Shape& parameter,
                           std::span<const double> settings) const;
  virtual Shape state_shape(std::size_t k, const Shape& parameter) const;
  virtual double state_start(std::size_t k, std::span<const double> settings) const;
  struct Now {
    std::int64_t step;
    std::span<const double> settings, numbers;
  };
  // A parameter's numbers go on before its step, which `now` counts already.
  virtual void advance(std::span<double> numbers, const Now& now) const;
  // Parameters, or their masters, that step alike: the tensors of state that they want are with
  // them, in order.
  struct Alike {
    std::int64_t step;  // counts this step, from 1
    bool fresh;         // state of theirs was made for this step
    std::span<const Stepped> list;
    std::span<const double> numbers;
    std::function<Now()> replayed;  // in a captured graph: of the replay that begins; else empty
  };
  // One pass over each: f32 or f64.
  virtual void update(const Alike& alike, std::span<const double> settings) = 0;
  // State that is no parameter's, to be saved with the others; keys begin with "groups.". Reading
  // notes faults, and gives what takes over the state if there are none.
  virtual NamedTensors own_state() const { return {}; }
  virtual std::function<void()> read_own_state(StateReader&) { return {}; }

  std::string_view name() const { return names_of_.optimizer; }
  // As a step takes it, or undefined.
  Tensor gradient(std::size_t parameter) const;
  std::string called(std::size_t parameter) const;  // "parameter fc1.weight of shape [128, 9216]"

 private:
  friend class OptimizerShards;  // of parameters that other ranks step
  struct Group {
    std::vector<double> settings;
    std::int64_t parameters;  // how many
    std::optional<double> initial_lr;
  };
  // What all parameters of a list have in common.
  struct Kind {
    std::size_t group;
    std::int64_t step;
    bool fresh;
    DType dtype;
    Device device;
    std::vector<double> numbers;
    bool maximize;
    bool operator==(const Kind&) const = default;
  };
  struct List {
    Kind kind;
    std::vector<std::size_t> numbers;  // of the parameters
    std::vector<Stepped> steps;
  };
  static bool is_behind(const State& state, const Tensor& parameter);
  static void follow(State& state, const Tensor& parameter);
  void follow_all();
  void note_versions();
  // The tensors that its settings want, in order; whole: all of them are made.
  struct Wanted {
    std::array<Tensor, 3> tensors;
    std::size_t count = 0;
    bool whole = true;
  };
  bool is_elsewhere(std::size_t parameter) const {
    return parameter < elsewhere_.size() && elsewhere_[parameter];
  }
  NamedTensors group_state() const;
  NamedTensors state_of(std::size_t parameter) const;
  bool wants(std::size_t parameter, std::size_t k) const;
  bool maximizes(std::size_t group) const;
  Wanted wanted_state(std::size_t parameter) const;
  bool make_state(std::size_t parameter);
  std::vector<List> lists();
  // optimizer_graph.cpp: a step that lies in a graph.
  void capture(Graph& graph);
  void check_state(std::size_t parameter, const Graph& graph) const;
  void check_replay(const List& list) const;
  void begin_replay(const std::vector<List>& lists);
  void end_replay(const std::vector<List>& lists);
  Group& at(std::size_t group);
  const Group& at(std::size_t group) const;
  std::size_t place(std::string_view setting) const;

  Names names_of_;
  std::vector<std::string_view> setting_names_, state_names_;  // flags, and those at times, behind
  std::optional<std::size_t> maximize_;                        // which setting it is
  std::vector<Group> groups_;
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;     // by parameter: as given, or its number
  std::vector<std::size_t> group_of_;  // by parameter
  std::vector<State> states_;          // by parameter
  // By parameter: another rank steps it, so it has no state here. Those behind the last: none does.
  std::vector<bool> elsewhere_;
  bool part_of_model_ = false;  // Parameters of a group are
  std::shared_ptr<Optimizer*> self_ = std::make_shared<Optimizer*>(this);  // for graphs
};

// Error unless low <= value < high. `what` is "SGD: momentum", for example.
void check_setting(std::string_view what, double value, double low, double high);
// Error where one is this rank's piece of a sharded parameter (Storage::is_piece), as `who` wants
// what all ranks have of it; `instead` says what to do.
void check_not_pieces(std::string_view who, std::span<const Tensor> parameters,
                      std::string_view instead);

}  // namespace peal::nn
