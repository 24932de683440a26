#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"
#include "text/jinja/text_util.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

const char* op_text(Op op) {
  switch (op) {
    case Op::kAdd: return "+";
    case Op::kSub: return "-";
    case Op::kMul: return "*";
    case Op::kDiv: return "/";
    case Op::kFloorDiv: return "//";
    case Op::kMod: return "%";
    case Op::kPow: return "**";
    case Op::kEq: return "==";
    case Op::kNe: return "!=";
    case Op::kLt: return "<";
    case Op::kLe: return "<=";
    case Op::kGt: return ">";
    case Op::kGe: return ">=";
    case Op::kIn: return "in";
    case Op::kNotIn: return "not in";
  }
  return "?";
}

tl::unexpected<Error> overflow(Op op, const Value& left, const Value& right) {
  return fail(ErrorCode::kOutOfRange, "{} {} {} is beyond 64-bit integers", left.as_int(), op_text(op), right.as_int());
}

Result<Value> integer_power(const Value& left, const Value& right) {
  int64_t base = left.as_int(), exponent = right.as_int(), result = 1;
  if (exponent < 0) {
    if (base == 0) return bug("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow(Op::kPow, left, right);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(Op::kPow, left, right);
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(Op op, const Value& left, const Value& right) {
  const int64_t a = left.as_int(), b = right.as_int();
  int64_t result = 0;
  if ((op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod) && b == 0) return bug("division by zero");
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return overflow(op, left, right);
      return Value::integer(result);
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return overflow(op, left, right);
      return Value::integer(result);
    case Op::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return overflow(op, left, right);
      return Value::integer(result);
    case Op::kDiv: return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Op::kPow: return integer_power(left, right);
    default: break;
  }
  if (b == -1) {  // the one quotient that overflows, and the one remainder that traps
    if (op == Op::kMod) return Value::integer(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) return overflow(op, left, right);
    return Value::integer(result);
  }
  const int64_t quotient = a / b, remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);  // Python rounds towards minus infinity
  if (op == Op::kFloorDiv) return Value::integer(quotient - (adjust ? 1 : 0));
  return Value::integer(adjust ? remainder + b : remainder);
}

Result<Value> real_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd: return Value::real(a + b);
    case Op::kSub: return Value::real(a - b);
    case Op::kMul: return Value::real(a * b);
    default: break;
  }
  if (op == Op::kPow) {
    if (a == 0.0 && b < 0) return bug("0.0 cannot be raised to a negative power");
    const double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) return bug("{} ** {} is no real number", a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return bug("{} ** {} is beyond a double", a, b);
    return Value::real(result);
  }
  if (b == 0.0) return bug("division by zero");
  if (op == Op::kDiv) return Value::real(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0.0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == Op::kMod) return Value::real(remainder == 0.0 ? std::copysign(0.0, b) : remainder);
  const double quotient = (a - remainder) / b;
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1.0;
  return Value::real(quotient == 0.0 ? std::copysign(0.0, a / b) : floor);
}

Result<Value> repeat(Interpreter& in, const Value& sequence, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const size_t unit = sequence.is_string() ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  if (unit == 0) count = std::min<int64_t>(count, 1);
  if (unit != 0 && static_cast<uint64_t>(count) > in.budget().limits().output_bytes / unit) {
    return fail(ErrorCode::kOutOfRange, "a sequence repeated {} times is longer than the {} bytes allowed", count,
                in.budget().limits().output_bytes);
  }
  if (sequence.is_string()) {
    const std::string& piece = sequence.text();
    std::string text;
    text.reserve(unit * static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) text += piece;
    return Value::string(std::move(text), sequence.string_node().markup);
  }
  List items;
  for (int64_t i = 0; i < count; ++i) items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  return Value::list(std::move(items), sequence.list_node()->flavor);
}

bool sequence_for_plus(const Value& v) {
  return v.is_list() && (v.list_node()->flavor == ListFlavor::kList || v.list_node()->flavor == ListFlavor::kTuple);
}

Result<Value> add_sequences(Interpreter& in, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    GALVANI_TRY_VOID(in.check_size(left.text().size() + right.text().size(), "the result of +"));
    const bool l = left.string_node().markup, r = right.string_node().markup;
    if (l == r) return Value::string(left.text() + right.text(), l);
    return Value::string((l ? left.text() : escape_html(left.text())) + (r ? right.text() : escape_html(right.text())),
                         true);
  }
  if (sequence_for_plus(left) && sequence_for_plus(right) && left.list_node()->flavor == right.list_node()->flavor) {
    const size_t total = left.items().size() + right.items().size();
    if (total > kMaxItems) return too_many_items(total);
    List items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return Value::list(std::move(items), left.list_node()->flavor);
  }
  return bug("cannot add {} and {}{}", left.type_name(), right.type_name(),
             left.is_string() || right.is_string() ? "; use ~ to join values as text" : "");
}

Result<bool> less_lists(const List& a, const List& b, Budget& budget) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!equal(a[i], b[i], &budget)) return less(a[i], b[i], budget);
  }
  return a.size() < b.size();
}

}  // namespace

Result<Value> binary(Interpreter& in, Op op, const Value& left, const Value& right) {
  if (left.is_undefined()) return bug("{}", left.undefined_reason());
  if (op == Op::kMod && left.is_string()) {
    GALVANI_TRY(std::string text, format_percent(in, left.text(), right));
    return Value::string(std::move(text), left.string_node().markup);
  }
  if (right.is_undefined()) return bug("{}", right.undefined_reason());
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return integer_arithmetic(op, left, right);
    return real_arithmetic(op, left.as_real(), right.as_real());
  }
  if (op == Op::kAdd) return add_sequences(in, left, right);
  if (op == Op::kMul) {
    const auto repeatable = [](const Value& v) { return v.is_string() || sequence_for_plus(v); };
    if (repeatable(left) && right.is_integral()) return repeat(in, left, right.as_int());
    if (left.is_integral() && repeatable(right)) return repeat(in, right, left.as_int());
  }
  return bug("{} does not work on {} and {}", op_text(op), left.type_name(), right.type_name());
}

Result<Value> negate(const Value& value) {
  if (value.is_float()) return Value::real(-value.as_real());
  if (value.is_undefined()) return bug("{}", value.undefined_reason());
  if (!value.is_integral()) return bug("- does not work on {}", value.type_name());
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.as_int(), &result)) {
    return fail(ErrorCode::kOutOfRange, "-({}) is beyond 64-bit integers", value.as_int());
  }
  return Value::integer(result);
}

Result<Value> plus(const Value& value) {
  if (value.is_float()) return value;
  if (value.is_undefined()) return bug("{}", value.undefined_reason());
  if (!value.is_integral()) return bug("+ does not work on {}", value.type_name());
  return Value::integer(value.as_int());
}

Result<bool> less(const Value& a, const Value& b, Budget& budget) {
  budget.touch(32);
  if (budget.exhausted()) return false;
  if (a.is_undefined()) return bug("{}", a.undefined_reason());
  if (b.is_undefined()) return bug("{}", b.undefined_reason());
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    const auto wide = [](const Value& v) {
      return v.is_float() ? static_cast<long double>(v.as_real()) : static_cast<long double>(v.as_int());
    };
    return wide(a) < wide(b);
  }
  if (a.is_string() && b.is_string()) {
    budget.touch(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // UTF-8 orders as its code points do
  }
  if (a.is_list() && b.is_list()) {
    const auto tuple = [](const Value& v) {
      return v.list_node()->flavor == ListFlavor::kTuple || v.list_node()->flavor == ListFlavor::kGroup;
    };
    const bool lists = a.list_node()->flavor == ListFlavor::kList && b.list_node()->flavor == ListFlavor::kList;
    if (lists || (tuple(a) && tuple(b))) return less_lists(a.items(), b.items(), budget);
  }
  return bug("{} and {} cannot be ordered", a.type_name(), b.type_name());
}

Result<bool> compare(Interpreter& in, Op op, const Value& left, const Value& right) {
  Budget& budget = in.budget();
  switch (op) {
    case Op::kEq: return equal(left, right, &budget);
    case Op::kNe: return !equal(left, right, &budget);
    case Op::kIn: return contains(in, right, left);
    case Op::kNotIn: {
      GALVANI_TRY(const bool found, contains(in, right, left));
      return !found;
    }
    default: break;
  }
  const bool nan = (left.is_float() && std::isnan(left.as_real())) || (right.is_float() && std::isnan(right.as_real()));
  if (nan && left.is_number() && right.is_number()) return false;
  const bool swapped = op == Op::kGt || op == Op::kLe;
  GALVANI_TRY(const bool first, swapped ? less(right, left, budget) : less(left, right, budget));
  return op == Op::kLt || op == Op::kGt ? first : !first;
}

Result<bool> contains(Interpreter& in, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) {
        return bug("'in' on a string needs a string on the left, not {}",
                   item.is_undefined() ? item.undefined_reason() : item.type_name());
      }
      in.budget().touch(container.text().size());
      return find_text(container.text(), item.text()) != std::string::npos;
    case Kind::kDict:
      if (!hashable(item)) return bug("a {} cannot be a dict key", item.type_name());
      in.budget().touch(item.is_string() ? item.text().size() : 8);
      return container.dict_node()->find(item) != nullptr;
    case Kind::kList: {
      ListNode& node = *container.list_node();
      size_t local = 0;
      size_t& next = node.flavor == ListFlavor::kGenerator ? node.consumed : local;
      while (next < node.items.size()) {
        const Value& candidate = node.items[next++];
        if (candidate.same(item) || equal(candidate, item, &in.budget())) return true;
        if (in.budget().exhausted()) return false;
      }
      return false;
    }
    default: return bug("'in' does not work on {}", container.type_name());
  }
}

}  // namespace galvani::text::jinja
