#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace galvani::text::jinja {
namespace {

struct Deeper {
  explicit Deeper(int& depth) : depth_(++depth) {}
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  int& depth_;
};

tl::unexpected<Error> unknown(const char* what, const std::string& name) {
  return bug("there is no {} named '{}'", what, name);
}

}  // namespace

Result<Value> Interpreter::evaluate(const Expr& node, const ScopePtr& scope) {
  const Deeper deeper(depth_);
  budget_.step();
  if (budget_.exhausted()) [[unlikely]]
    GALVANI_TRY_VOID(check_budget());
  if (depth_ > budget_.limits().max_call_depth) [[unlikely]] {
    return fail(ErrorCode::kOutOfRange, "evaluation is nested too deep (macro recursion without end?)");
  }
  line_ = node.line;
  switch (node.kind) {
    case ExprKind::kConst: return node.constant;
    case ExprKind::kName: return evaluate_name(node, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict: return evaluate_display(node, scope);
    case ExprKind::kConcat: return evaluate_concat(node, scope);
    case ExprKind::kCompare: return evaluate_compare(node, scope);
    case ExprKind::kSlice: return evaluate_slice(node, scope);
    case ExprKind::kCall: return evaluate_call(node, scope, nullptr);
    case ExprKind::kFilter: return evaluate_filter(node, scope, nullptr);
    case ExprKind::kTest: return evaluate_test(node, scope);
    default: return evaluate_plain(node, scope);
  }
}

/// Operators and lookups whose operands are all evaluated here.
Result<Value> Interpreter::evaluate_plain(const Expr& node, const ScopePtr& scope) {
  GALVANI_TRY(Value first, evaluate(*node.children[0], scope));
  switch (node.kind) {
    case ExprKind::kNegate: return negate(first);
    case ExprKind::kPlus: return plus(first);
    case ExprKind::kNot: return Value::boolean(!first.truthy());
    case ExprKind::kAnd: return first.truthy() ? evaluate(*node.children[1], scope) : Result<Value>(std::move(first));
    case ExprKind::kOr: return first.truthy() ? Result<Value>(std::move(first)) : evaluate(*node.children[1], scope);
    case ExprKind::kConditional:
      if (first.truthy()) return evaluate(*node.children[1], scope);
      if (node.children[2] != nullptr) return evaluate(*node.children[2], scope);
      return Value::undefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.", node.line));
    case ExprKind::kAttribute: return attribute(*this, first, node.constant);
    case ExprKind::kBinary: {
      GALVANI_TRY(const Value second, evaluate(*node.children[1], scope));
      GALVANI_TRY(Value value, binary(*this, node.op, first, second));
      return made(std::move(value));
    }
    case ExprKind::kItem: {
      GALVANI_TRY(const Value key, evaluate(*node.children[1], scope));
      return item(*this, first, key);
    }
    default: return fail(ErrorCode::kInternal, "an expression of a kind that cannot be evaluated");
  }
}

Result<Value> Interpreter::evaluate_name(const Expr& node, const ScopePtr& scope) {
  for (const Scope* s = scope.get(); s != nullptr; s = s->parent.get()) {
    if (const Value* found = s->find_here(node.name_id)) return *found;
  }
  const std::string& name = program_.names[node.name_id];
  if (const NativeSpec* global = find_global(name)) {
    auto function = std::make_shared<FunctionNode>();
    function->spec = global;
    return Value::function(std::move(function));
  }
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Interpreter::evaluate_display(const Expr& node, const ScopePtr& scope) {
  if (node.kind != ExprKind::kDict) {
    List items;
    items.reserve(node.children.size());
    for (const ExprPtr& child : node.children) {
      GALVANI_TRY(Value value, evaluate(*child, scope));
      items.push_back(std::move(value));
    }
    return made(Value::list(std::move(items), node.kind == ExprKind::kTuple ? ListFlavor::kTuple : ListFlavor::kList));
  }
  auto dict = std::make_shared<DictNode>();
  for (size_t i = 0; i < node.children.size(); i += 2) {
    GALVANI_TRY(Value key, evaluate(*node.children[i], scope));
    GALVANI_TRY(Value value, evaluate(*node.children[i + 1], scope));
    if (!hashable(key)) return bug("a {} cannot be a dict key", key.type_name());
    dict->set(std::move(key), std::move(value));
  }
  return made(Value::dict(std::move(dict)));
}

Result<Value> Interpreter::evaluate_concat(const Expr& node, const ScopePtr& scope) {
  std::string text;
  for (const ExprPtr& child : node.children) {
    GALVANI_TRY(const Value value, evaluate(*child, scope));
    text += to_str(value, budget_);
    GALVANI_TRY_VOID(check_size(text.size(), "the result of ~"));
  }
  return made_string(std::move(text));
}

Result<Value> Interpreter::evaluate_compare(const Expr& node, const ScopePtr& scope) {
  GALVANI_TRY(Value left, evaluate(*node.children[0], scope));
  for (size_t i = 0; i < node.ops.size(); ++i) {
    GALVANI_TRY(Value right, evaluate(*node.children[i + 1], scope));
    GALVANI_TRY(const bool holds, compare(*this, node.ops[i], left, right));
    GALVANI_TRY_VOID(check_budget());
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_slice(const Expr& node, const ScopePtr& scope) {
  Value parts[4] = {Value::none(), Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 4; ++i) {
    if (node.children[i] == nullptr) continue;
    GALVANI_TRY(parts[i], evaluate(*node.children[i], scope));
  }
  if (parts[0].is_string()) budget_.touch(parts[0].text().size());
  GALVANI_TRY(Value value, slice(parts[0], parts[1], parts[2], parts[3]));
  return made(std::move(value));
}

Result<Args> Interpreter::evaluate_arguments(const std::vector<Argument>& arguments, const ScopePtr& scope) {
  Args out;
  const auto add_named = [&](const std::string& name, Value value) -> Status {
    for (const auto& [other, ignored] : out.named) {
      if (other == name) return bug("the argument '{}' is given twice", name);
    }
    out.named.emplace_back(name, std::move(value));
    return {};
  };
  for (const Argument& argument : arguments) {
    GALVANI_TRY(Value value, evaluate(*argument.value, scope));
    switch (argument.kind) {
      case Argument::Kind::kPositional: out.positional.push_back(std::move(value)); break;
      case Argument::Kind::kNamed: GALVANI_TRY_VOID(add_named(argument.name, std::move(value))); break;
      case Argument::Kind::kSpread: {
        GALVANI_TRY(List items, iterate(value));
        budget_.create(items.size() * sizeof(Value));
        GALVANI_TRY_VOID(check_budget());
        for (Value& item : items) out.positional.push_back(std::move(item));
        break;
      }
      case Argument::Kind::kSpreadNamed:
        if (!value.is_dict()) return bug("the argument after ** must be a dict, not {}", value.type_name());
        if (value.dict_node()->size() > 1000) return bug("more than 1000 named arguments");
        for (const auto& [key, entry] : value.dict_node()->entries()) {
          if (!key.is_string()) return bug("named arguments need keys that are strings");
          GALVANI_TRY_VOID(add_named(key.text(), entry));
        }
        break;
    }
  }
  return out;
}

Result<Value> Interpreter::evaluate_call(const Expr& node, const ScopePtr& scope, const Value* caller) {
  GALVANI_TRY(const Value callee, evaluate(*node.children[0], scope));
  GALVANI_TRY(Args args, evaluate_arguments(node.arguments, scope));
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  line_ = node.line;
  return call(callee, std::move(args));
}

Result<Value> Interpreter::evaluate_filter(const Expr& node, const ScopePtr& scope, const Value* input) {
  Value value;
  if (node.children[0] == nullptr) {
    if (input == nullptr) return fail(ErrorCode::kInternal, "a filter without input");
    value = *input;
  } else if (input != nullptr && node.children[0]->kind == ExprKind::kFilter) {
    GALVANI_TRY(value, evaluate_filter(*node.children[0], scope, input));
  } else {
    GALVANI_TRY(value, evaluate(*node.children[0], scope));
  }
  GALVANI_TRY(Args args, evaluate_arguments(node.arguments, scope));
  line_ = node.line;
  if (node.native == nullptr) return unknown("filter", node.text);
  GALVANI_TRY(Value result, call_native(*this, *node.native, value, std::move(args)));
  return made(std::move(result));
}

Result<Value> Interpreter::evaluate_test(const Expr& node, const ScopePtr& scope) {
  GALVANI_TRY(const Value value, evaluate(*node.children[0], scope));
  GALVANI_TRY(Args args, evaluate_arguments(node.arguments, scope));
  line_ = node.line;
  if (node.native == nullptr) return unknown("test", node.text);
  GALVANI_TRY(const Value result, call_native(*this, *node.native, value, std::move(args)));
  GALVANI_TRY_VOID(check_budget());
  return Value::boolean(result.truthy());
}

Result<Value> Interpreter::call_filter(const std::string& name, const Value& value, Args args) {
  const Deeper deeper(depth_);
  budget_.step();
  if (depth_ > budget_.limits().max_call_depth) return fail(ErrorCode::kOutOfRange, "filters are nested too deep");
  const NativeSpec* spec = find_filter(name);
  if (spec == nullptr) return unknown("filter", name);
  GALVANI_TRY(Value result, call_native(*this, *spec, value, std::move(args)));
  return made(std::move(result));
}

Result<bool> Interpreter::call_test(const std::string& name, const Value& value, Args args) {
  budget_.step();
  GALVANI_TRY_VOID(check_budget());
  const NativeSpec* spec = find_test(name);
  if (spec == nullptr) return unknown("test", name);
  GALVANI_TRY(const Value result, call_native(*this, *spec, value, std::move(args)));
  return result.truthy();
}

}  // namespace galvani::text::jinja
