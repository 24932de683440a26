#pragma once
/// Python's operators on values.
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace galvani::text::jinja {

class Interpreter;

/// + - * / // % **. Integers are 64 bits: an overflow is an error. Results are bounded by the output limit.
Result<Value> binary(Interpreter& in, Op op, const Value& left, const Value& right);
Result<Value> negate(const Value& value);
Result<Value> plus(const Value& value);
/// Any of == != < <= > >= in, not in.
Result<bool> compare(Interpreter& in, Op op, const Value& left, const Value& right);
/// a < b for sorting; an error when Python cannot order the two.
Result<bool> less(const Value& a, const Value& b, Budget& budget);
Result<bool> contains(Interpreter& in, const Value& container, const Value& item);

/// object.name: the attribute or method, else the item of that name, else undefined.
Result<Value> attribute(Interpreter& in, const Value& object, const Value& name);
/// object[key]: the item, else the attribute of that name, else undefined.
Result<Value> item(Interpreter& in, const Value& object, const Value& key);
/// object[start:stop:step]; none where left out.
Result<Value> slice(const Value& object, const Value& start, const Value& stop, const Value& step);

/// All items of an iterable (keys of a dict, code points of a string); uses up a generator.
Result<List> iterate(const Value& value);
/// len(value).
Result<int64_t> length(const Value& value);

}  // namespace galvani::text::jinja
