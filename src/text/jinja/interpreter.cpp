#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace galvani::text::jinja {

const Value* Scope::find_here(uint32_t name) const {
  for (const auto& [id, value] : variables) {
    if (id == name) return &value;
  }
  return nullptr;
}

void Scope::set(uint32_t name, Value value) {
  for (auto& [id, old] : variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

/// Counts nested evaluations; the bound keeps hostile recursion off the end of the stack.
struct Interpreter::Depth {
  explicit Depth(int& depth) : depth_(++depth) {}
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  int& depth_;
};

Interpreter::Interpreter(const Program& program, const Limits& limits, CivilTime now)
    : program_(program), budget_(limits), now_(now), root_(std::make_shared<Scope>()) {}

Interpreter::~Interpreter() {
  // Every namespace and captured scope is still held by its list, so emptying one frees nothing recursively.
  std::vector<Value> kept;
  for (const auto& scope : captured_) {
    for (auto& [id, value] : scope->variables) kept.push_back(std::move(value));
    scope->variables.clear();
  }
  for (const auto& node : namespaces_) {
    for (const auto& [key, value] : node->attributes.entries()) kept.push_back(value);
    node->attributes.clear();
  }
  root_->variables.clear();
}

Status Interpreter::check_budget() const {
  if (!budget_.exhausted()) return {};
  return fail(ErrorCode::kOutOfRange,
              "the template used more than it may ({}); limits: {} evaluation steps, {} bytes of text", budget_.what(),
              budget_.limits().steps, budget_.limits().output_bytes);
}

Status Interpreter::check_size(size_t bytes, const char* what) const {
  if (bytes <= budget_.limits().output_bytes) return {};
  return fail(ErrorCode::kOutOfRange, "{} would be {} bytes; at most {} are allowed", what, bytes,
              budget_.limits().output_bytes);
}

Result<Value> Interpreter::made(Value value) {
  budget_.create(value.shallow_bytes());
  GALVANI_TRY_VOID(check_budget());
  if (value.depth() > budget_.limits().max_value_depth) {
    return fail(ErrorCode::kOutOfRange, "a value is nested more than {} levels deep", budget_.limits().max_value_depth);
  }
  return value;
}

std::shared_ptr<NamespaceNode> Interpreter::new_namespace() {
  budget_.create(sizeof(NamespaceNode));
  namespaces_.push_back(std::make_shared<NamespaceNode>());
  return namespaces_.back();
}

Result<std::string> Interpreter::run() {
  std::string out;
  GALVANI_TRY([[maybe_unused]] const Flow flow, execute(program_.body, root_, out));
  return out;
}

Status Interpreter::append(std::string& out, std::string_view text) {
  budget_.create(text.size());
  if (out.size() + text.size() > budget_.limits().output_bytes) budget_.exhaust("output text");
  GALVANI_TRY_VOID(check_budget());
  out += text;
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body, const ScopePtr& scope, std::string& out) {
  for (const StmtPtr& node : body) {
    GALVANI_TRY(const Flow flow, execute(*node, scope, out));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::execute(const Stmt& node, const ScopePtr& scope, std::string& out) {
  const Depth depth(depth_);
  line_ = node.line;
  budget_.step();
  GALVANI_TRY_VOID(check_budget());
  switch (node.kind) {
    case StmtKind::kData: GALVANI_TRY_VOID(append(out, node.text)); break;
    case StmtKind::kPrint: {
      GALVANI_TRY(const Value value, evaluate(*node.exprs[0], scope));
      GALVANI_TRY_VOID(append(out, to_str(value, budget_)));
      break;
    }
    case StmtKind::kIf: return execute_if(node, scope, out);
    case StmtKind::kFor: {
      GALVANI_TRY(const Value iterable, evaluate(*node.exprs[1], scope));
      GALVANI_TRY_VOID(execute_for(node, iterable, scope, 0, out));
      break;
    }
    case StmtKind::kSet:
    case StmtKind::kSetBlock: GALVANI_TRY_VOID(execute_set(node, scope)); break;
    case StmtKind::kMacro: scope->set(node.macro->name_id, make_macro(*node.macro, scope)); break;
    case StmtKind::kCall: GALVANI_TRY_VOID(execute_call_block(node, scope, out)); break;
    case StmtKind::kFilter: {
      GALVANI_TRY(std::string text, capture(node.bodies[0], scope));
      const Value input = Value::string(std::move(text));
      GALVANI_TRY(const Value value, evaluate_filter(*node.exprs[0], scope, &input));
      GALVANI_TRY_VOID(append(out, to_str(value, budget_)));
      break;
    }
    case StmtKind::kWith: GALVANI_TRY_VOID(execute_with(node, scope, out)); break;
    case StmtKind::kScope: {
      GALVANI_TRY(const std::string text, capture(node.bodies[0], scope));
      GALVANI_TRY_VOID(append(out, text));
      break;
    }
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::execute_if(const Stmt& node, const ScopePtr& scope, std::string& out) {
  for (size_t i = 0; i < node.exprs.size(); ++i) {
    GALVANI_TRY(const Value condition, evaluate(*node.exprs[i], scope));
    if (condition.truthy()) return execute(node.bodies[i], scope, out);
  }
  if (node.bodies.size() > node.exprs.size()) return execute(node.bodies.back(), scope, out);
  return Flow::kNormal;
}

Result<std::string> Interpreter::capture(const Body& body, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  std::string text;
  GALVANI_TRY([[maybe_unused]] const Flow flow, execute(body, inner, text));
  return text;
}

Status Interpreter::execute_set(const Stmt& node, const ScopePtr& scope) {
  if (node.kind == StmtKind::kSet) {
    GALVANI_TRY(Value value, evaluate(*node.exprs[1], scope));
    return assign(*node.exprs[0], std::move(value), scope);
  }
  GALVANI_TRY(std::string text, capture(node.bodies[0], scope));
  Value value = Value::string(std::move(text));
  if (node.exprs[1] != nullptr) {
    GALVANI_TRY(value, evaluate_filter(*node.exprs[1], scope, &value));
  }
  return assign(*node.exprs[0], std::move(value), scope);
}

Status Interpreter::assign(const Expr& target, Value value, const ScopePtr& scope) {
  if (target.kind == ExprKind::kName) {
    scope->set(target.name_id, std::move(value));
    return {};
  }
  if (target.kind == ExprKind::kTarget) {
    Expr name;
    name.kind = ExprKind::kName;
    name.name_id = target.name_id;
    name.line = target.line;
    GALVANI_TRY(const Value object, evaluate_name(name, scope));
    if (object.kind() != Kind::kNamespace) {
      return bug("cannot assign the attribute {}: {} is no namespace", target.text, program_.names[target.name_id]);
    }
    object.namespace_node()->attributes.set(Value::string(target.text), std::move(value));
    return {};
  }
  GALVANI_TRY(List items, iterate(value));
  if (items.size() != target.children.size()) {
    return bug("cannot unpack {} values into {} names", items.size(), target.children.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    GALVANI_TRY_VOID(assign(*target.children[i], std::move(items[i]), scope));
  }
  return {};
}

Value Interpreter::make_macro(const MacroDefinition& definition, const ScopePtr& scope) {
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
  budget_.create(sizeof(MacroNode));
  return Value::macro(std::make_shared<MacroNode>(MacroNode{&definition, scope}));
}

Status Interpreter::execute_call_block(const Stmt& node, const ScopePtr& scope, std::string& out) {
  const Value caller = make_macro(*node.macro, scope);
  GALVANI_TRY(const Value value, evaluate_call(*node.exprs[0], scope, &caller));
  return append(out, to_str(value, budget_));
}

Status Interpreter::execute_with(const Stmt& node, const ScopePtr& scope, std::string& out) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  for (size_t i = 0; i < node.exprs.size(); i += 2) {
    GALVANI_TRY(Value value, evaluate(*node.exprs[i + 1], scope));
    GALVANI_TRY_VOID(assign(*node.exprs[i], std::move(value), inner));
  }
  GALVANI_TRY([[maybe_unused]] const Flow flow, execute(node.bodies[0], inner, out));
  return {};
}

Status Interpreter::execute_for(const Stmt& node, const Value& iterable, const ScopePtr& scope, int depth0,
                                std::string& out) {
  auto loop = std::make_shared<LoopNode>();
  loop->statement = &node;
  loop->outer = scope;
  loop->depth0 = depth0;
  if (iterable.is_list()) {
    loop->source = iterable.list_node();
  } else {
    GALVANI_TRY(List items, iterate(iterable));
    GALVANI_TRY(const Value list, made(Value::list(std::move(items))));
    loop->source = list.list_node();
  }
  if (node.exprs[2] == nullptr && loop->source->flavor != ListFlavor::kGenerator) {
    loop->total = static_cast<int64_t>(loop->source->items.size());
  }
  // However the loop is left, it must not keep alive (or in a cycle) what it walked over.
  struct End {
    LoopNode& loop;
    ~End() {
      loop.ended = true;
      loop.source.reset();
      loop.after.reset();
      loop.outer.reset();
      loop.current = loop.before = Value();
      loop.changed.clear();
    }
  } end{*loop};

  ScopePtr inner;
  bool completed = false;
  while (true) {
    Value item;
    if (loop->after != nullptr) {
      item = *std::exchange(loop->after, nullptr);
    } else {
      GALVANI_TRY(const bool more, fetch(*loop, item));
      if (!more) break;
    }
    ++loop->index0;
    loop->before = std::move(loop->current);
    loop->has_before = loop->has_current;
    loop->current = item;
    loop->has_current = true;
    if (inner == nullptr || inner.use_count() > 1) {
      inner = std::make_shared<Scope>();
      inner->parent = scope;
    }
    inner->variables.clear();
    inner->set(kNameLoop, Value::loop(loop));
    GALVANI_TRY_VOID(assign(*node.exprs[0], std::move(item), inner));
    GALVANI_TRY(const Flow flow, execute(node.bodies[0], inner, out));
    if (flow == Flow::kBreak) break;
    // As in jinja2, only an iteration that reached its end keeps the else branch away.
    if (flow == Flow::kNormal) completed = true;
  }
  if (inner != nullptr && inner.use_count() == 1) inner->variables.clear();
  if (completed) return {};
  auto other = std::make_shared<Scope>();
  other->parent = scope;
  GALVANI_TRY([[maybe_unused]] const Flow flow, execute(node.bodies[1], other, out));
  return {};
}

Result<Value> Interpreter::call(const Value& callee, Args args) {
  const Depth depth(depth_);
  if (depth_ > budget_.limits().max_call_depth) {
    return fail(ErrorCode::kOutOfRange, "calls are nested too deep (macro recursion without end?)");
  }
  switch (callee.kind()) {
    case Kind::kMacro: return call_macro(*callee.macro_node(), std::move(args));
    case Kind::kFunction: {
      const FunctionNode& function = *callee.function_node();
      GALVANI_TRY(Value value, call_native(*this, *function.spec, callee.function_node()->self, std::move(args)));
      return made(std::move(value));
    }
    case Kind::kLoop: return call_loop(*callee.loop_node(), std::move(args));
    case Kind::kUndefined: return bug("{}", callee.undefined_reason());
    default: return bug("a value of type {} cannot be called", callee.type_name());
  }
}

Result<Value> Interpreter::call_macro(const MacroNode& macro, Args args) {
  const MacroDefinition& definition = *macro.definition;
  auto scope = std::make_shared<Scope>();
  scope->parent = macro.closure;
  const size_t count = definition.parameters.size(), given = std::min(count, args.positional.size());
  if (args.positional.size() > count && !definition.uses_varargs) {
    return bug("macro '{}' takes at most {} arguments, {} were given", definition.name, count, args.positional.size());
  }
  const auto take_named = [&](const std::string& name) -> std::unique_ptr<Value> {
    for (auto it = args.named.begin(); it != args.named.end(); ++it) {
      if (it->first != name) continue;
      auto value = std::make_unique<Value>(std::move(it->second));
      args.named.erase(it);
      return value;
    }
    return nullptr;
  };
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = definition.parameters[i];
    if (i < given) {
      scope->set(definition.parameter_ids[i], args.positional[i]);
      continue;
    }
    if (const auto value = take_named(name)) {
      scope->set(definition.parameter_ids[i], std::move(*value));
      continue;
    }
    const size_t first_default = count - definition.defaults.size();
    Value value = Value::undefined(fmt::format("parameter '{}' was not provided", name));
    if (i >= first_default) {
      GALVANI_TRY(value, evaluate(*definition.defaults[i - first_default], scope));
    }
    scope->set(definition.parameter_ids[i], std::move(value));
  }
  if (definition.uses_caller) {
    const auto caller = take_named("caller");
    scope->set(kNameCaller, caller != nullptr ? std::move(*caller) : Value::undefined("No caller defined"));
  }
  if (definition.uses_kwargs) {
    auto rest = std::make_shared<DictNode>();
    for (auto& [name, value] : args.named) rest->set(Value::string(name), std::move(value));
    scope->set(kNameKwargs, Value::dict(std::move(rest)));
  } else if (!args.named.empty()) {
    return bug("macro '{}' takes no keyword argument '{}'", definition.name, args.named.front().first);
  }
  if (definition.uses_varargs) {
    List rest(args.positional.begin() + static_cast<std::ptrdiff_t>(given), args.positional.end());
    GALVANI_TRY(Value value, made(Value::list(std::move(rest), ListFlavor::kTuple)));
    scope->set(kNameVarargs, std::move(value));
  }
  std::string text;
  GALVANI_TRY([[maybe_unused]] const Flow flow, execute(definition.body, scope, text));
  return made_string(std::move(text));
}

}  // namespace galvani::text::jinja
