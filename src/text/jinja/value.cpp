#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

constexpr size_t kIndexedDictSize = 8;

size_t mix(size_t seed, size_t value) { return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2)); }

bool equal_lists(const ListNode& a, const ListNode& b, Budget* budget) {
  const auto same_type = [&] {
    const auto tuple = [](ListFlavor f) { return f == ListFlavor::kTuple || f == ListFlavor::kGroup; };
    return a.flavor == b.flavor || (tuple(a.flavor) && tuple(b.flavor));
  };
  if (!same_type() || a.items.size() != b.items.size()) return false;
  if (a.flavor == ListFlavor::kGenerator || a.flavor == ListFlavor::kValues) return &a == &b;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool equal_dicts(const DictNode& a, const DictNode& b, Budget* budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

Value Value::undefined(std::string reason) {
  return Value(Data(UndefinedType{std::make_shared<const std::string>(std::move(reason))}));
}

Value Value::string(std::string text, bool markup) {
  const size_t length = count_codepoints(text);
  const bool ascii = length == text.size();
  return Value(Data(std::make_shared<const StringNode>(StringNode{std::move(text), markup, ascii, length})));
}

Value Value::list(List items, ListFlavor flavor) {
  auto node = std::make_shared<ListNode>();
  for (const Value& item : items) node->depth = std::max(node->depth, 1 + item.depth());
  node->items = std::move(items);
  node->flavor = flavor;
  return Value(Data(std::move(node)));
}

const std::string& Value::text() const { return string_node().text; }
const List& Value::items() const { return list_node()->items; }

std::string Value::undefined_reason() const {
  const auto& reason = std::get<UndefinedType>(data_).reason;
  return reason ? *reason : "the value is undefined";
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return as_bool();
    case Kind::kInt: return as_int() != 0;
    case Kind::kFloat: return as_real() != 0.0;
    case Kind::kString: return !text().empty();
    case Kind::kList: return list_node()->flavor == ListFlavor::kGenerator || !items().empty();
    case Kind::kDict: return dict_node()->size() != 0;
    case Kind::kLoop: return loop_truthy(*loop_node());
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kNamespace: return true;
  }
  return false;
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kList: return list_node()->depth;
    case Kind::kDict: return dict_node()->depth();
    case Kind::kFunction: return function_node()->depth;
    default: return 0;
  }
}

const char* Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return string_node().markup ? "Markup" : "str";
    case Kind::kDict: return "dict";
    case Kind::kFunction: return "builtin_function_or_method";
    case Kind::kMacro: return "Macro";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kList: break;
  }
  switch (list_node()->flavor) {
    case ListFlavor::kList: return "list";
    case ListFlavor::kTuple: return "tuple";
    case ListFlavor::kGroup: return "_GroupTuple";
    case ListFlavor::kRange: return "range";
    case ListFlavor::kItems: return "dict_items";
    case ListFlavor::kKeys: return "dict_keys";
    case ListFlavor::kValues: return "dict_values";
    case ListFlavor::kGenerator: return "generator";
  }
  return "object";
}

bool Value::same(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kBool: return as_bool() == other.as_bool();
    case Kind::kInt: return as_int() == other.as_int();
    case Kind::kFloat: return as_real() == other.as_real();
    default: return data_ == other.data_;
  }
}

size_t Value::shallow_bytes() const {
  switch (kind()) {
    case Kind::kString: return sizeof(StringNode) + text().size();
    case Kind::kDict: return sizeof(DictNode) + dict_node()->size() * 2 * sizeof(Value);
    case Kind::kUndefined:
    case Kind::kFunction: return 64;
    case Kind::kList: {
      size_t bytes = sizeof(ListNode);
      for (const Value& item : items())
        bytes += sizeof(Value) + (item.is_string() ? sizeof(StringNode) + item.text().size() : 0);
      return bytes;
    }
    default: return 0;
  }
}

const Value* DictNode::find(const Value& key) const {
  const size_t at = position(key, hash_value(key));
  return at < entries_.size() ? &entries_[at].second : nullptr;
}

const Value* DictNode::find(std::string_view key) const {
  if (entries_.size() <= kIndexedDictSize) {
    for (const auto& [name, value] : entries_) {
      if (name.is_string() && name.text() == key) return &value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    const Value& name = entries_[it->second].first;
    if (name.is_string() && name.text() == key) return &entries_[it->second].second;
  }
  return nullptr;
}

size_t DictNode::position(const Value& key, size_t hash) const {
  if (entries_.size() <= kIndexedDictSize) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (equal(entries_[i].first, key, nullptr)) return i;
    }
    return entries_.size();
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (equal(entries_[it->second].first, key, nullptr)) return it->second;
  }
  return entries_.size();
}

void DictNode::set(Value key, Value value) {
  const size_t hash = hash_value(key);
  const size_t at = position(key, hash);
  depth_ = std::max({depth_, 1 + key.depth(), 1 + value.depth()});
  if (at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() < kIndexedDictSize + 1) return;
  if (entries_.size() == kIndexedDictSize + 1) {
    for (size_t i = 0; i + 1 < entries_.size(); ++i) index_.emplace(hash_value(entries_[i].first), i);
  }
  index_.emplace(hash, at);
}

void DictNode::clear() {
  std::vector<Entry>().swap(entries_);
  index_.clear();
}

bool hashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_list()) return true;
  const ListNode& node = *value.list_node();
  switch (node.flavor) {
    case ListFlavor::kTuple:
    case ListFlavor::kGroup:
      // Only short, flat tuples: shared nested ones would cost exponential time.
      return node.items.size() <= 64 &&
             std::all_of(node.items.begin(), node.items.end(), [](const Value& v) { return v.depth() == 0; });
    case ListFlavor::kRange:
    case ListFlavor::kGenerator: return true;
    default: return false;
  }
}

size_t hash_value(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 1;
    case Kind::kNone: return 2;
    case Kind::kBool:
    case Kind::kInt: return std::hash<double>()(static_cast<double>(value.as_int()));
    case Kind::kFloat: return std::hash<double>()(value.as_real());
    case Kind::kString: return std::hash<std::string_view>()(value.text());
    case Kind::kList: {
      size_t seed = value.items().size();
      for (const Value& item : value.items()) seed = mix(seed, hash_value(item));
      return seed;
    }
    case Kind::kDict: return value.dict_node()->size();
    case Kind::kFunction: return std::hash<const void*>()(value.function_node().get());
    case Kind::kMacro: return std::hash<const void*>()(value.macro_node().get());
    case Kind::kNamespace: return std::hash<const void*>()(value.namespace_node().get());
    case Kind::kLoop: return std::hash<const void*>()(value.loop_node().get());
  }
  return 0;
}

bool equal(const Value& a, const Value& b, Budget* budget) {
  if (budget != nullptr) {
    budget->touch(32);
    if (budget->exhausted()) return false;
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) {
      // long double holds every int64 and every double exactly.
      const auto wide = [](const Value& v) {
        return v.is_float() ? static_cast<long double>(v.as_real()) : static_cast<long double>(v.as_int());
      };
      return wide(a) == wide(b);
    }
    return a.as_int() == b.as_int();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      if (budget != nullptr) budget->touch(a.text().size());
      return a.text() == b.text();
    case Kind::kList: return a.list_node() == b.list_node() || equal_lists(*a.list_node(), *b.list_node(), budget);
    case Kind::kDict: return a.dict_node() == b.dict_node() || equal_dicts(*a.dict_node(), *b.dict_node(), budget);
    default: return a.same(b);
  }
}

}  // namespace galvani::text::jinja
