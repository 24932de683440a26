/// Filters over sequences and mappings.
#include <algorithm>
#include <unordered_map>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_util.h"
#include "text/jinja/unicode.h"

namespace galvani::text::jinja {
namespace {

const Value* given(const Args& args, size_t i) {
  return args.get(i) != nullptr && !args.at(i).is_none() ? &args.at(i) : nullptr;
}

bool flag(const Args& args, size_t i) { return args.get(i) != nullptr && args.at(i).truthy(); }

/// The value to compare by: an attribute if asked for, lower case unless case matters.
Result<Value> sort_key(Interpreter& in, const Value& item, const Value* path, bool case_sensitive) {
  Value key = item;
  if (path != nullptr) {
    GALVANI_TRY(key, attribute_path(in, item, *path));
  }
  if (!case_sensitive && key.is_string()) key = Value::string(to_lower(key.text()), key.string_node().markup);
  return key;
}

using Keyed = std::pair<Value, Value>;  // key, item

/// Stable sort whose comparison can fail.
Status sort_keyed(Interpreter& in, std::vector<Keyed>& items, bool reverse) {
  Status status;
  const auto before = [&](const Keyed& a, const Keyed& b) {
    if (!status || in.budget().exhausted()) return false;
    auto result = less(a.first, b.first, in.budget());
    if (!result) status = tl::unexpected<Error>(std::move(result).error());
    return status && *result;
  };
  if (reverse) std::reverse(items.begin(), items.end());
  // Merge by hand: std::stable_sort may run off the range when the order stops being consistent after an error.
  std::vector<Keyed> other(items.size());
  for (size_t width = 1; width < items.size() && status; width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size()), end = std::min(begin + 2 * width, items.size());
      size_t a = begin, b = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool second = a == middle || (b < end && before(items[b], items[a]));
        other[out] = std::move(items[second ? b++ : a++]);
      }
    }
    items.swap(other);
  }
  if (reverse) std::reverse(items.begin(), items.end());
  GALVANI_TRY_VOID(in.check_budget());
  return status;
}

List items_of(std::vector<Keyed> keyed) {
  List out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

Result<std::vector<Keyed>> keyed_items(Interpreter& in, const Value& self, const Value* path, bool case_sensitive) {
  GALVANI_TRY(const List items, iterate(self));
  std::vector<Keyed> out;
  for (const Value& item : items) {
    GALVANI_TRY(Value key, sort_key(in, item, path, case_sensitive));
    out.emplace_back(std::move(key), item);
  }
  return out;
}

/// sort's attribute may name several, separated by commas. The key is a list, so that equal values need no order.
Result<std::vector<Keyed>> multi_keyed_items(Interpreter& in, const Value& self, const Value* path, bool sensitive) {
  List parts;
  if (path != nullptr && path->is_string()) {
    const std::string& names = path->text();
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find(',', begin), names.size());
      parts.push_back(Value::string(names.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    parts.push_back(path != nullptr ? *path : Value());
  }
  GALVANI_TRY(const List items, iterate(self));
  std::vector<Keyed> out;
  for (const Value& item : items) {
    List keys;
    for (const Value& part : parts) {
      GALVANI_TRY(Value key, sort_key(in, item, path != nullptr ? &part : nullptr, sensitive));
      keys.push_back(std::move(key));
    }
    out.emplace_back(Value::list(std::move(keys)), item);
  }
  return out;
}

Result<Value> sort(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(auto keyed, multi_keyed_items(in, self, given(args, 2), flag(args, 1)));
  GALVANI_TRY_VOID(sort_keyed(in, keyed, flag(args, 0)));
  return Value::list(items_of(std::move(keyed)));
}

Result<Value> dictsort(Interpreter& in, const Value& self, Args& args) {
  const std::string by = args.get(1) != nullptr ? to_str(args.at(1), in.budget()) : "key";
  if (by != "key" && by != "value") return bug("dictsort sorts by 'key' or 'value', not '{}'", by);
  if (!self.is_dict()) {
    return bug("dictsort works on dicts, not {}", self.is_undefined() ? self.undefined_reason() : self.type_name());
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict_node()->entries()) {
    GALVANI_TRY(Value order, sort_key(in, by == "key" ? key : value, nullptr, flag(args, 0)));
    keyed.emplace_back(std::move(order), Value::list({key, value}, ListFlavor::kTuple));
  }
  GALVANI_TRY_VOID(sort_keyed(in, keyed, flag(args, 2)));
  return Value::list(items_of(std::move(keyed)));
}

Result<Value> unique(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const auto keyed, keyed_items(in, self, given(args, 1), flag(args, 0)));
  DictNode seen;
  List out;
  for (const auto& [key, item] : keyed) {
    if (!hashable(key)) return bug("unique cannot compare values of type {}", key.type_name());
    in.budget().touch(key.is_string() ? key.text().size() : 8);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    out.push_back(item);
  }
  return Value::list(std::move(out), ListFlavor::kGenerator);
}

template <bool Max>
Result<Value> extreme(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const auto keyed, keyed_items(in, self, given(args, 1), flag(args, 0)));
  if (keyed.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    GALVANI_TRY(const bool better, Max ? less(keyed[best].first, keyed[i].first, in.budget())
                                       : less(keyed[i].first, keyed[best].first, in.budget()));
    if (better) best = i;
  }
  return keyed[best].second;
}

Result<Value> group_by(Interpreter& in, const Value& self, Args& args) {
  const bool sensitive = flag(args, 2);
  GALVANI_TRY(const List items, iterate(self));
  std::vector<Keyed> keyed;
  const auto key_of = [&](const Value& item) -> Result<Value> {
    return attribute_path(in, item, args.at(0), given(args, 1));
  };
  for (const Value& item : items) {
    GALVANI_TRY(const Value key, key_of(item));
    GALVANI_TRY(Value order, sort_key(in, key, nullptr, sensitive));
    keyed.emplace_back(std::move(order), item);
  }
  GALVANI_TRY_VOID(sort_keyed(in, keyed, false));
  List groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    List members;
    while (end < keyed.size() && equal(keyed[begin].first, keyed[end].first, &in.budget())) {
      members.push_back(keyed[end++].second);
    }
    if (end == begin) break;  // the budget ran out, or a key is no equal of itself
    GALVANI_TRY(Value name, key_of(keyed[begin].second));
    groups.push_back(Value::list({std::move(name), Value::list(std::move(members))}, ListFlavor::kGroup));
    begin = end;
  }
  return Value::list(std::move(groups));
}

Result<Value> first(Interpreter&, const Value& self, Args&) {
  if (self.is_list() && self.list_node()->flavor == ListFlavor::kGenerator) {
    ListNode& node = *self.list_node();
    if (node.consumed < node.items.size()) return node.items[node.consumed++];
  } else if (self.is_string() && !self.text().empty()) {
    size_t end = 0;
    next_codepoint(self.text(), end);
    return Value::string(self.text().substr(0, end));
  } else {
    GALVANI_TRY(const List items, iterate(self));
    if (!items.empty()) return items.front();
  }
  return Value::undefined("No first item, sequence was empty.");
}

Result<Value> last(Interpreter&, const Value& self, Args&) {
  if (self.is_list() && self.list_node()->flavor == ListFlavor::kGenerator) return bug("a generator has no last item");
  if (self.is_string()) {
    if (self.text().empty()) return Value::undefined("No last item, sequence was empty.");
    size_t begin = self.text().size();
    previous_codepoint(self.text(), begin);
    return Value::string(self.text().substr(begin));
  }
  GALVANI_TRY(const List items, iterate(self));
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Result<Value> length_filter(Interpreter&, const Value& self, Args&) {
  GALVANI_TRY(const int64_t n, length(self));
  return Value::integer(n);
}

Result<Value> list(Interpreter&, const Value& self, Args&) {
  GALVANI_TRY(List items, iterate(self));
  return Value::list(std::move(items));
}

Result<Value> items(Interpreter&, const Value& self, Args&) {
  List out;
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict_node()->entries()) {
      out.push_back(Value::list({key, value}, ListFlavor::kTuple));
    }
  } else if (!self.is_undefined()) {
    return bug("items works on mappings, not {}", self.type_name());
  }
  return Value::list(std::move(out), ListFlavor::kGenerator);
}

Result<Value> reverse(Interpreter&, const Value& self, Args&) {
  if (self.is_string()) return slice(self, Value::none(), Value::none(), Value::integer(-1));
  if (self.is_undefined()) return Value::list({});
  GALVANI_TRY(List out, iterate(self));
  std::reverse(out.begin(), out.end());
  const bool was_generator = self.is_list() && self.list_node()->flavor == ListFlavor::kGenerator;
  return Value::list(std::move(out), was_generator ? ListFlavor::kList : ListFlavor::kGenerator);
}

Result<Value> sum(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const List values, iterate(self));
  Value total = args.get(1) != nullptr ? args.at(1) : Value::integer(0);
  if (total.is_string()) return bug("sum cannot add strings; use join");
  for (const Value& item : values) {
    Value part = item;
    if (const Value* path = given(args, 0)) {
      GALVANI_TRY(part, attribute_path(in, item, *path));
    }
    GALVANI_TRY(total, binary(in, Op::kAdd, total, part));
    GALVANI_TRY(total, in.made(std::move(total)));
  }
  return total;
}

Result<Value> batch(Interpreter& in, const Value& self, Args& args) {
  GALVANI_TRY(const List values, iterate(self));
  GALVANI_TRY(const int64_t count, integer_argument(args, 0, 1, "batch's size"));
  List rows, row;
  for (const Value& item : values) {
    if (static_cast<int64_t>(row.size()) == count) rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (const Value* fill = given(args, 1); fill != nullptr && count > static_cast<int64_t>(row.size())) {
      GALVANI_TRY_VOID(in.check_size(static_cast<size_t>(std::min<int64_t>(count, 1 << 30)) * 8, "a batch"));
      row.resize(static_cast<size_t>(count), *fill);
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(rows), ListFlavor::kGenerator);
}

Result<Value> slice_columns(Interpreter&, const Value& self, Args& args) {
  GALVANI_TRY(const List values, iterate(self));
  GALVANI_TRY(const int64_t slices, integer_argument(args, 0, 1, "slice's count"));
  if (slices < 1 || slices > 100000) return bug("slice needs a count from 1 to 100000, not {}", slices);
  const size_t count = static_cast<size_t>(slices), each = values.size() / count, extra = values.size() % count;
  List out;
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t end = begin + each + (i < extra ? 1 : 0);
    List column(values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end));
    if (given(args, 1) != nullptr && i >= extra) column.push_back(args.at(1));
    out.push_back(Value::list(std::move(column)));
    begin = end;
  }
  return Value::list(std::move(out), ListFlavor::kGenerator);
}

/// map(attribute=…, default=…) or map('filter', …).
Result<Value> map(Interpreter& in, const Value& self, Args& args) {
  List out;
  if (!self.truthy()) return Value::list(std::move(out), ListFlavor::kGenerator);
  GALVANI_TRY(const List values, iterate(self));
  const Value *path = nullptr, *fallback = nullptr;
  if (args.positional.empty()) {
    for (const auto& [name, value] : args.named) {
      if (name == "attribute")
        path = &value;
      else if (name == "default")
        fallback = &value;
      else
        return bug("map has no argument named '{}'", name);
    }
    if (path == nullptr) return bug("map needs a filter or attribute=");
  }
  Args rest;
  std::string name;
  if (path == nullptr) {
    GALVANI_TRY(name, string_argument(args, 0, "map's filter"));
    rest.positional.assign(args.positional.begin() + 1, args.positional.end());
    rest.named = args.named;
  }
  for (const Value& item : values) {
    Value result;
    if (path != nullptr) {
      GALVANI_TRY(result, attribute_path(in, item, *path, fallback));
    } else {
      GALVANI_TRY(result, in.call_filter(name, item, rest));
    }
    out.push_back(std::move(result));
  }
  return Value::list(std::move(out), ListFlavor::kGenerator);
}

template <bool Keep, bool ByAttribute>
Result<Value> select(Interpreter& in, const Value& self, Args& args) {
  List out;
  if (!self.truthy()) return Value::list(std::move(out), ListFlavor::kGenerator);
  constexpr size_t kTestAt = ByAttribute ? 1 : 0;
  if (ByAttribute && args.positional.empty()) return bug("selectattr and rejectattr need an attribute name");
  GALVANI_TRY(const List values, iterate(self));
  Args rest;
  std::string name;
  if (args.positional.size() > kTestAt) {
    GALVANI_TRY(name, string_argument(args, kTestAt, "the test's name"));
    rest.positional.assign(args.positional.begin() + kTestAt + 1, args.positional.end());
    rest.named = args.named;
  }
  for (const Value& item : values) {
    Value tested = item;
    if constexpr (ByAttribute) {
      GALVANI_TRY(tested, attribute_path(in, item, args.positional[0]));
    }
    bool passed = tested.truthy();
    if (!name.empty()) {
      GALVANI_TRY(passed, in.call_test(name, tested, rest));
    }
    if (passed == Keep) out.push_back(item);
  }
  return Value::list(std::move(out), ListFlavor::kGenerator);
}

constexpr NativeSpec kFilters[] = {
    {"batch", batch, "linecount,fill_with", 1},
    {"count", length_filter, ""},
    {"dictsort", dictsort, "case_sensitive,by,reverse"},
    {"first", first, ""},
    {"groupby", group_by, "attribute,default,case_sensitive", 1},
    {"items", items, ""},
    {"last", last, ""},
    {"length", length_filter, ""},
    {"list", list, ""},
    {"map", map, "*"},
    {"max", extreme<true>, "case_sensitive,attribute"},
    {"min", extreme<false>, "case_sensitive,attribute"},
    {"reject", select<false, false>, "*"},
    {"rejectattr", select<false, true>, "*"},
    {"reverse", reverse, ""},
    {"select", select<true, false>, "*"},
    {"selectattr", select<true, true>, "*"},
    {"slice", slice_columns, "slices,fill_with", 1},
    {"sort", sort, "reverse,case_sensitive,attribute"},
    {"sum", sum, "attribute,start"},
    {"unique", unique, "case_sensitive,attribute"},
};

}  // namespace

std::span<const NativeSpec> list_filters() { return kFilters; }

Result<Value> attribute_path(Interpreter& in, const Value& object, const Value& path, const Value* fallback) {
  const auto step = [&](const Value& from, const Value& key) -> Result<Value> {
    GALVANI_TRY(Value found, item(in, from, key));
    if (found.is_undefined() && fallback != nullptr && !fallback->is_none()) return *fallback;
    return found;
  };
  if (path.is_integral()) return step(object, path);
  if (!path.is_string()) return bug("an attribute must be a string or an integer, not {}", path.type_name());
  Value current = object;
  const std::string& text = path.text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    GALVANI_TRY(current, step(current, number ? Value::integer(std::stoll(part)) : Value::string(part)));
    begin = end + 1;
  }
  return current;
}

}  // namespace galvani::text::jinja
