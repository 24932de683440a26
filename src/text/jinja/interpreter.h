#pragma once
/// Runs a syntax tree. One interpreter serves one rendering.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/builtins.h"
#include "text/jinja/clock.h"
#include "text/jinja/value.h"

namespace galvani::text::jinja {

/// Variables of one block, macro call or loop iteration. A `set` writes here; reading looks outwards.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<uint32_t, Value>> variables;

  const Value* find_here(uint32_t name) const;
  void set(uint32_t name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroNode {
  const MacroDefinition* definition = nullptr;
  ScopePtr closure;  ///< where it was defined: names are looked up there when it is called
};

/// A running for loop. Items are taken one by one, so that a filter sees what the body did before.
struct LoopNode : std::enable_shared_from_this<LoopNode> {
  std::shared_ptr<ListNode> source;
  size_t next = 0;                     ///< index into source, unless that is a generator
  std::shared_ptr<const Value> after;  ///< item already taken by `last` or `nextitem`
  Value current, before;
  int64_t index0 = -1, total = -1;  ///< total < 0: not known yet
  int depth0 = 0;
  bool ended = false;
  bool filtered = false;  ///< the rest of `source` already passed the filter
  bool has_current = false, has_before = false;
  const Stmt* statement = nullptr;
  ScopePtr outer;
  std::vector<Value> changed;
  bool has_changed = false;
};

bool loop_truthy(const LoopNode& loop);
std::string macro_repr(const MacroNode& macro);
std::string loop_repr(const LoopNode& loop);

class Interpreter {
 public:
  Interpreter(const Program& program, const Limits& limits, CivilTime now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Budget& budget() noexcept { return budget_; }
  const CivilTime& now() const noexcept { return now_; }
  /// Line of the node that ran last: where an error happened.
  int line() const noexcept { return line_; }

  void define(uint32_t name, Value value) { root_->set(name, std::move(value)); }
  /// Renders the whole program.
  Result<std::string> run();

  // For natives.
  Result<Value> call(const Value& callee, Args args);
  Result<Value> call_filter(const std::string& name, const Value& value, Args args);
  Result<bool> call_test(const std::string& name, const Value& value, Args args);
  Result<Value> loop_attribute(LoopNode& loop, std::string_view name);
  std::shared_ptr<NamespaceNode> new_namespace();
  /// Charges a value just made and passes it on; an error when it is nested too deep or the budget is used up.
  Result<Value> made(Value value);
  Result<Value> made_string(std::string text, bool markup = false) {
    return made(Value::string(std::move(text), markup));
  }
  Status check_budget() const;
  /// An error unless a string of `bytes` may be built.
  Status check_size(size_t bytes, const char* what) const;

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  struct Depth;

  Result<Value> evaluate(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_plain(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_name(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_display(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_concat(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_compare(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_slice(const Expr& node, const ScopePtr& scope);
  Result<Value> evaluate_call(const Expr& node, const ScopePtr& scope, const Value* caller);
  Result<Value> evaluate_filter(const Expr& node, const ScopePtr& scope, const Value* input);
  Result<Value> evaluate_test(const Expr& node, const ScopePtr& scope);
  Result<Args> evaluate_arguments(const std::vector<Argument>& arguments, const ScopePtr& scope);

  Result<Flow> execute(const Body& body, const ScopePtr& scope, std::string& out);
  Result<Flow> execute(const Stmt& node, const ScopePtr& scope, std::string& out);
  Result<Flow> execute_if(const Stmt& node, const ScopePtr& scope, std::string& out);
  Status execute_for(const Stmt& node, const Value& iterable, const ScopePtr& scope, int depth0, std::string& out);
  Status execute_set(const Stmt& node, const ScopePtr& scope);
  Status execute_call_block(const Stmt& node, const ScopePtr& scope, std::string& out);
  Status execute_with(const Stmt& node, const ScopePtr& scope, std::string& out);
  /// Runs the body in a new scope into text of its own.
  Result<std::string> capture(const Body& body, const ScopePtr& scope);
  Status append(std::string& out, std::string_view text);
  Status assign(const Expr& target, Value value, const ScopePtr& scope);
  Result<Value> call_macro(const MacroNode& macro, Args args);
  Result<Value> call_loop(LoopNode& loop, Args args);
  Value make_macro(const MacroDefinition& definition, const ScopePtr& scope);

  /// The loop's next item that passes its filter; false at the end.
  Result<bool> fetch(LoopNode& loop, Value& item);
  Result<bool> peek(LoopNode& loop);
  Result<int64_t> loop_length(LoopNode& loop);

  const Program& program_;
  Budget budget_;
  CivilTime now_;
  int line_ = 1;
  int depth_ = 0;
  ScopePtr root_;
  // Macros, namespaces and recursive loops can form cycles: these are emptied at the end.
  std::vector<ScopePtr> captured_;
  std::vector<std::shared_ptr<NamespaceNode>> namespaces_;
};

}  // namespace galvani::text::jinja
