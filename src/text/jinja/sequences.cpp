/// Lookups: attributes, items, slices, iteration and length.
#include <algorithm>
#include <limits>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

/// How jinja2 names the type of an object in messages.
std::string object_name(const Value& object) {
  if (object.is_none()) return "None";
  return fmt::format("'{} object'", object.type_name());
}

Value no_attribute(const Value& object, const std::string& name) {
  return Value::undefined(fmt::format("{} has no attribute '{}'", object_name(object), name));
}

Value bind(const NativeSpec* spec, const Value& self) {
  auto node = std::make_shared<FunctionNode>();
  node->spec = spec;
  node->self = self;
  node->depth = self.depth() + 1;
  return Value::function(std::move(node));
}

bool changes_its_object(const Value& object, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear",  "pop",  "reverse",
                                               "insert", "extend", "sort", "remove"};
  if (object.is_dict()) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  if (!object.is_list() || object.list_node()->flavor != ListFlavor::kList) return false;
  return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

/// Methods and properties; false when the type has none of that name.
Result<bool> find_attribute(Interpreter& in, const Value& object, const std::string& name, Value& out) {
  const auto unsafe = [&] {
    out = Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
    return true;
  };
  if (name.size() > 2 && name.substr(0, 2) == "__" && object.kind() != Kind::kNamespace) return unsafe();
  if (changes_its_object(object, name)) return unsafe();
  const NativeSpec* spec = nullptr;
  switch (object.kind()) {
    case Kind::kString: spec = find_string_method(name); break;
    case Kind::kDict: spec = find_dict_method(name); break;
    case Kind::kList: {
      const ListNode& node = *object.list_node();
      if (node.flavor == ListFlavor::kGroup && (name == "grouper" || name == "list")) {
        out = node.items[name == "grouper" ? 0 : 1];
        return true;
      }
      const bool indexed = node.flavor == ListFlavor::kList || node.flavor == ListFlavor::kTuple ||
                           node.flavor == ListFlavor::kGroup || node.flavor == ListFlavor::kRange;
      if (indexed) spec = find_list_method(name);
      break;
    }
    case Kind::kNamespace: {
      const Value* found = object.namespace_node()->attributes.find(name);
      if (found != nullptr) out = *found;
      return found != nullptr;
    }
    case Kind::kLoop: {
      GALVANI_TRY(out, in.loop_attribute(*object.loop_node(), name));
      return true;
    }
    case Kind::kMacro:
      if (name != "name") return false;
      out = Value::string(object.macro_node()->definition->name);
      return true;
    default: return false;
  }
  if (spec != nullptr) out = bind(spec, object);
  return spec != nullptr;
}

/// Position of index `i` in a sequence of `size`, or -1.
int64_t position(int64_t i, int64_t size) {
  if (i < 0) i += size;
  return i >= 0 && i < size ? i : -1;
}

bool indexable(const Value& value) {
  if (!value.is_list()) return false;
  const ListFlavor f = value.list_node()->flavor;
  return f == ListFlavor::kList || f == ListFlavor::kTuple || f == ListFlavor::kGroup || f == ListFlavor::kRange;
}

/// object[key]; false when there is no such item.
bool find_item(Interpreter& in, const Value& object, const Value& key, Value& out) {
  if (object.is_dict()) {
    if (!hashable(key)) return false;
    const Value* found = object.dict_node()->find(key);
    if (found != nullptr) out = *found;
    return found != nullptr;
  }
  if (!key.is_integral()) return false;
  if (object.is_string()) {
    const StringNode& node = object.string_node();
    if (!node.ascii) in.budget().touch(node.text.size());
    const int64_t size = static_cast<int64_t>(node.length);
    const int64_t at = position(key.as_int(), size);
    if (at < 0) return false;
    const size_t begin = node.ascii ? static_cast<size_t>(at) : codepoint_offset(node.text, static_cast<size_t>(at));
    size_t end = begin;
    next_codepoint(node.text, end);
    out = Value::string(node.text.substr(begin, end - begin), node.markup);
    return true;
  }
  if (!indexable(object)) return false;
  const int64_t at = position(key.as_int(), static_cast<int64_t>(object.items().size()));
  if (at >= 0) out = object.items()[static_cast<size_t>(at)];
  return at >= 0;
}

struct SliceBounds {
  int64_t start, stop, step;
};

/// Python's rules for slices of a sequence of `size`.
Result<SliceBounds> slice_bounds(int64_t size, const Value& start, const Value& stop, const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_undefined()) return bug("{}", part->undefined_reason());
    if (!part->is_none() && !part->is_integral())
      return bug("slice indices must be integers, not {}", part->type_name());
  }
  SliceBounds out{0, 0, step.is_none() ? 1 : step.as_int()};
  if (out.step == 0) return bug("a slice step cannot be zero");
  const int64_t low = out.step < 0 ? -1 : 0, high = out.step < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& v, int64_t fallback) {
    if (v.is_none()) return fallback;
    const int64_t i = v.as_int();
    return std::clamp(i < 0 ? (i < -size ? low : i + size) : i, low, high);
  };
  out.start = clamp(start, out.step < 0 ? high : low);
  out.stop = clamp(stop, out.step < 0 ? low : high);
  // Steps beyond the size all mean "only the first": keeps the walk from overflowing.
  out.step = std::clamp(out.step, -size - 1, size + 1);
  return out;
}

template <typename Take>
void walk(const SliceBounds& bounds, const Take& take) {
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop; i += bounds.step) take(i);
}

Result<Value> slice_string(const StringNode& node, const Value& start, const Value& stop, const Value& step) {
  const std::string& text = node.text;
  std::vector<size_t> offsets;  // of code points, with the end, when they are not bytes
  if (!node.ascii) {
    for (size_t pos = 0; pos < text.size(); next_codepoint(text, pos)) offsets.push_back(pos);
    offsets.push_back(text.size());
  }
  const int64_t size = static_cast<int64_t>(node.ascii ? text.size() : offsets.size() - 1);
  GALVANI_TRY(const SliceBounds bounds, slice_bounds(size, start, stop, step));
  const auto offset = [&](int64_t i) { return node.ascii ? static_cast<size_t>(i) : offsets[static_cast<size_t>(i)]; };
  std::string out;
  if (bounds.step == 1) {
    if (bounds.start < bounds.stop) {
      out = text.substr(offset(bounds.start), offset(bounds.stop) - offset(bounds.start));
    }
  } else {
    walk(bounds, [&](int64_t i) { out += text.substr(offset(i), offset(i + 1) - offset(i)); });
  }
  return Value::string(std::move(out), node.markup);
}

}  // namespace

Result<Value> attribute(Interpreter& in, const Value& object, const Value& name) {
  if (object.is_undefined()) return bug("{}", object.undefined_reason());
  Value out;
  GALVANI_TRY(const bool found, find_attribute(in, object, name.text(), out));
  if (found || find_item(in, object, name, out)) return out;
  return no_attribute(object, name.text());
}

Result<Value> item(Interpreter& in, const Value& object, const Value& key) {
  if (object.is_undefined()) return bug("{}", object.undefined_reason());
  Value out;
  if (find_item(in, object, key, out)) return out;
  if (!key.is_string()) {
    return Value::undefined(fmt::format("{} has no element {}", object_name(object), to_repr(key, in.budget())));
  }
  GALVANI_TRY(const bool found, find_attribute(in, object, key.text(), out));
  return found ? out : no_attribute(object, key.text());
}

Result<Value> slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) return bug("{}", object.undefined_reason());
  if (object.is_string()) return slice_string(object.string_node(), start, stop, step);
  if (!indexable(object)) {
    return bug("a value of type {} cannot be sliced", object.type_name());
  }
  const ListNode& node = *object.list_node();
  GALVANI_TRY(const SliceBounds bounds, slice_bounds(static_cast<int64_t>(node.items.size()), start, stop, step));
  List items;
  walk(bounds, [&](int64_t i) { items.push_back(node.items[static_cast<size_t>(i)]); });
  if (node.flavor != ListFlavor::kRange) {
    return Value::list(std::move(items), node.flavor == ListFlavor::kGroup ? ListFlavor::kTuple : node.flavor);
  }
  Value out = Value::list(std::move(items), ListFlavor::kRange);
  ListNode& range = *out.list_node();
  // Only for printing; unsigned so that absurd steps wrap instead of overflowing.
  const auto scaled = [&](int64_t i) { return static_cast<uint64_t>(i) * static_cast<uint64_t>(node.step); };
  range.step = static_cast<int64_t>(scaled(bounds.step));
  range.start = static_cast<int64_t>(static_cast<uint64_t>(node.start) + scaled(bounds.start));
  range.stop = static_cast<int64_t>(static_cast<uint64_t>(node.start) + scaled(bounds.stop));
  return out;
}

Result<List> iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return List{};
    case Kind::kString: {
      List out;
      const std::string& text = value.text();
      if (text.size() > kMaxItems) return too_many_items(text.size());
      for (size_t pos = 0; pos < text.size();) {
        const size_t begin = pos;
        next_codepoint(text, pos);
        out.push_back(Value::string(text.substr(begin, pos - begin)));
      }
      return out;
    }
    case Kind::kDict: {
      List out;
      for (const auto& [key, item] : value.dict_node()->entries()) out.push_back(key);
      return out;
    }
    case Kind::kList: {
      ListNode& node = *value.list_node();
      if (node.flavor != ListFlavor::kGenerator) return node.items;
      List rest(node.items.begin() + static_cast<std::ptrdiff_t>(node.consumed), node.items.end());
      node.consumed = node.items.size();
      return rest;
    }
    default: return bug("a value of type {} is not iterable", value.type_name());
  }
}

Result<int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return static_cast<int64_t>(value.string_node().length);
    case Kind::kDict: return static_cast<int64_t>(value.dict_node()->size());
    case Kind::kList:
      if (value.list_node()->flavor != ListFlavor::kGenerator) return static_cast<int64_t>(value.items().size());
      break;
    default: break;
  }
  return bug("a value of type {} has no length", value.type_name());
}

}  // namespace galvani::text::jinja
