/// Tests: what stands after `is`.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

template <bool (*Predicate)(const Value&)>
Result<Value> check(Interpreter&, const Value& self, Args&) {
  return Value::boolean(Predicate(self));
}

template <Op kOp>
Result<Value> relation(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const bool holds, compare(in, kOp, self, args.at(0)));
  return Value::boolean(holds);
}

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool integer(const Value& v) { return v.is_int(); }
bool real(const Value& v) { return v.is_float(); }
bool number(const Value& v) { return v.is_number(); }
bool string(const Value& v) { return v.is_string(); }
bool mapping(const Value& v) { return v.is_dict(); }
bool escaped(const Value& v) { return v.is_string() && v.string_node().markup; }

bool iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_list() || v.is_dict() || v.kind() == Kind::kLoop;
}

/// Has a length and can be indexed.
bool sequence(const Value& v) {
  if (v.is_string() || v.is_dict()) return true;
  if (v.is_undefined()) return true;
  if (!v.is_list()) return false;
  switch (v.list_node()->flavor) {
    case ListFlavor::kList:
    case ListFlavor::kTuple:
    case ListFlavor::kGroup:
    case ListFlavor::kRange: return true;
    default: return false;
  }
}

bool callable(const Value& v) {
  return v.is_undefined() || v.kind() == Kind::kFunction || v.kind() == Kind::kMacro || v.kind() == Kind::kLoop;
}

template <bool kEven>
Result<Value> parity(Interpreter& in, const Value& self, Args&) {
  GALVANI_TRY(const Value rest, binary(in, Op::kMod, self, Value::integer(2)));
  return Value::boolean(equal(rest, Value::integer(kEven ? 0 : 1), &in.budget()));
}

Result<Value> divisible_by(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const Value rest, binary(in, Op::kMod, self, args.at(0)));
  return Value::boolean(equal(rest, Value::integer(0), &in.budget()));
}

Result<Value> same_as(Interpreter&, const Value& self, Args& args) { return Value::boolean(self.same(args.at(0))); }

template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Result<Value> case_test(Interpreter& in, const Value& self, Args&) {
  const std::string text = to_str(self, in.budget());
  in.budget().touch(text.size());
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_codepoint(text, pos);
    if (Other(c) || is_title(c)) return Value::boolean(false);
    any = any || Wanted(c);
  }
  return Value::boolean(any);
}

Result<Value> is_filter(Interpreter& in, const Value& self, Args&) {
  return Value::boolean(find_filter(to_str(self, in.budget())) != nullptr);
}

Result<Value> is_test(Interpreter& in, const Value& self, Args&) {
  return Value::boolean(find_test(to_str(self, in.budget())) != nullptr);
}

constexpr NativeSpec kTests[] = {
    {"!=", relation<Op::kNe>, "other", 1},
    {"<", relation<Op::kLt>, "other", 1},
    {"<=", relation<Op::kLe>, "other", 1},
    {"==", relation<Op::kEq>, "other", 1},
    {">", relation<Op::kGt>, "other", 1},
    {">=", relation<Op::kGe>, "other", 1},
    {"boolean", check<boolean>, ""},
    {"callable", check<callable>, ""},
    {"defined", check<defined>, ""},
    {"divisibleby", divisible_by, "num", 1},
    {"eq", relation<Op::kEq>, "other", 1},
    {"equalto", relation<Op::kEq>, "other", 1},
    {"escaped", check<escaped>, ""},
    {"even", parity<true>, ""},
    {"false", check<is_false>, ""},
    {"filter", is_filter, ""},
    {"float", check<real>, ""},
    {"ge", relation<Op::kGe>, "other", 1},
    {"greaterthan", relation<Op::kGt>, "other", 1},
    {"gt", relation<Op::kGt>, "other", 1},
    {"in", relation<Op::kIn>, "seq", 1},
    {"integer", check<integer>, ""},
    {"iterable", check<iterable>, ""},
    {"le", relation<Op::kLe>, "other", 1},
    {"lessthan", relation<Op::kLt>, "other", 1},
    {"lower", case_test<is_lower, is_upper>, ""},
    {"lt", relation<Op::kLt>, "other", 1},
    {"mapping", check<mapping>, ""},
    {"ne", relation<Op::kNe>, "other", 1},
    {"none", check<none>, ""},
    {"number", check<number>, ""},
    {"odd", parity<false>, ""},
    {"sameas", same_as, "other", 1},
    {"sequence", check<sequence>, ""},
    {"string", check<string>, ""},
    {"test", is_test, ""},
    {"true", check<is_true>, ""},
    {"undefined", check<undefined>, ""},
    {"upper", case_test<is_upper, is_lower>, ""},
};

}  // namespace

const NativeSpec* find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& t) { return t.name == name; });
  return found != std::end(kTests) ? found : nullptr;
}

}  // namespace galvani::text::jinja
