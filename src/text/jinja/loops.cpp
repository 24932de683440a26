#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"

namespace galvani::text::jinja {

bool loop_truthy(const LoopNode& loop) { return loop.total != 0; }

std::string macro_repr(const MacroNode& macro) { return fmt::format("<Macro '{}'>", macro.definition->name); }

std::string loop_repr(const LoopNode& loop) {
  return fmt::format("<LoopContext {}/{}>", loop.index0 + 1, std::max<int64_t>(loop.total, 0));
}

Result<bool> Interpreter::fetch(LoopNode& loop, Value& item) {
  if (loop.source == nullptr) return false;
  ListNode& source = *loop.source;
  size_t& next = source.flavor == ListFlavor::kGenerator ? source.consumed : loop.next;
  while (next < source.items.size()) {
    item = source.items[next++];
    budget_.step();
    GALVANI_TRY_VOID(check_budget());
    const Expr* filter = loop.statement->exprs[2].get();
    if (filter == nullptr || loop.filtered) return true;
    auto scope = std::make_shared<Scope>();
    scope->parent = loop.outer;
    GALVANI_TRY_VOID(assign(*loop.statement->exprs[0], item, scope));
    GALVANI_TRY(const Value keep, evaluate(*filter, scope));
    if (keep.truthy()) return true;
  }
  return false;
}

Result<bool> Interpreter::peek(LoopNode& loop) {
  if (loop.after != nullptr) return true;
  Value item;
  GALVANI_TRY(const bool more, fetch(loop, item));
  if (more) loop.after = std::make_shared<const Value>(std::move(item));
  return more;
}

Result<int64_t> Interpreter::loop_length(LoopNode& loop) {
  if (loop.total >= 0) return loop.total;
  // A filter or a generator has no length: take the rest now and walk over that.
  auto rest = std::make_shared<ListNode>();
  while (true) {
    Value item;
    GALVANI_TRY(const bool more, fetch(loop, item));
    if (!more) break;
    budget_.create(sizeof(Value));
    rest->items.push_back(std::move(item));
  }
  loop.total = static_cast<int64_t>(rest->items.size()) + loop.index0 + 1 + (loop.after != nullptr ? 1 : 0);
  loop.source = std::move(rest);
  loop.next = 0;
  loop.filtered = true;
  return loop.total;
}

Result<Value> Interpreter::loop_attribute(LoopNode& loop, std::string_view name) {
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.has_before ? loop.before : Value::undefined("there is no previous item");
  if (name == "last") {
    GALVANI_TRY(const bool more, peek(loop));
    return Value::boolean(!more);
  }
  if (name == "nextitem") {
    GALVANI_TRY(const bool more, peek(loop));
    return more ? *loop.after : Value::undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    GALVANI_TRY(const int64_t total, loop_length(loop));
    if (name == "length") return Value::integer(total);
    return Value::integer(total - loop.index0 - (name == "revindex0" ? 1 : 0));
  }
  if (const NativeSpec* method = find_loop_method(name)) {
    auto node = std::make_shared<FunctionNode>();
    node->spec = method;
    node->self = Value::loop(loop.shared_from_this());
    return Value::function(std::move(node));
  }
  return Value::undefined(fmt::format("'jinja2.runtime.LoopContext object' has no attribute '{}'", name));
}

Result<Value> Interpreter::call_loop(LoopNode& loop, Args args) {
  if (!loop.statement->recursive) return bug("loop() needs a loop with the 'recursive' marker");
  if (loop.ended) return bug("loop() was called after its loop ended");
  if (args.positional.size() != 1 || !args.named.empty()) return bug("loop() takes one argument, the iterable");
  std::string text;
  const ScopePtr outer = loop.outer;
  GALVANI_TRY_VOID(execute_for(*loop.statement, args.positional[0], outer, loop.depth0 + 1, text));
  return made_string(std::move(text));
}

}  // namespace galvani::text::jinja
