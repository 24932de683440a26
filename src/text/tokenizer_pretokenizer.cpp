#include "text/tokenizer_pretokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "text/tokenizer_bytelevel.h"
#include "text/unicode.h"

namespace galvani::text {
namespace {

struct Part {
  Span span;
  bool match;
};

/// Matches and the gaps between them, tiling the piece.
std::vector<Part> tile(Span piece, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(matches.size() * 2 + 1);
  size_t done = piece.begin;
  for (const Span& match : matches) {
    if (done < match.begin) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < piece.end) parts.push_back({{done, piece.end}, invert});
  return parts;
}

/// Joins parts[i] to the part before it in iteration order where `joins(part, previous_was_match)`.
template <typename Joins>
void fold(std::vector<Part>& parts, Joins joins) {
  std::vector<Part> folded;
  bool previous = false;
  for (const Part& part : parts) {
    if (!folded.empty() && joins(part.match, previous)) {
      Span& last = folded.back().span;
      last = {std::min(last.begin, part.span.begin), std::max(last.end, part.span.end)};
    } else {
      folded.push_back(part);
    }
    previous = part.match;
  }
  parts = std::move(folded);
}

/// Spans of the single code points for which `test` holds.
template <typename Test>
void find_code_points(std::string_view text, Span piece, Test test, std::vector<Span>& out) {
  const CharTable& table = CharTable::get();
  size_t length = 0;
  for (size_t i = piece.begin; i < piece.end; i += length) {
    if (test(table[utf8_at(text, i, length)])) out.push_back({i, i + length});
  }
}

/// Maximal runs of code points of one kind; kind 0 is skipped.
template <typename Kind>
void find_runs(std::string_view text, Span piece, Kind kind, std::vector<Span>& out) {
  const CharTable& table = CharTable::get();
  size_t length = 0;
  int current = 0;
  for (size_t i = piece.begin; i < piece.end; i += length) {
    const int now = kind(table[utf8_at(text, i, length)]);
    if (now != 0 && now == current) {
      out.back().end = i + length;
    } else if (now != 0) {
      out.push_back({i, i + length});
    }
    current = now;
  }
}

struct Apply {
  PieceList& list;

  template <typename Find>
  Status split_pieces(Find find, SplitBehavior behavior, bool invert) const {
    std::vector<Span> pieces, matches;
    pieces.reserve(list.pieces.size());
    for (const Span& piece : list.pieces) {
      matches.clear();
      GALVANI_TRY_VOID(find(piece, matches));
      split_at(piece, matches, behavior, invert, pieces);
    }
    list.pieces = std::move(pieces);
    return {};
  }

  /// Splits by a pattern, which sees each piece on its own.
  Status split_by(const SplitPattern& pattern, SplitBehavior behavior, bool invert) const {
    return split_pieces(
        [&](Span piece, std::vector<Span>& matches) -> Status {
          const std::string_view text = std::string_view(list.text).substr(piece.begin, piece.end - piece.begin);
          GALVANI_TRY_VOID(pattern.find_all(text, matches));
          for (Span& match : matches) match = {match.begin + piece.begin, match.end + piece.begin};
          return {};
        },
        behavior, invert);
  }

  template <typename Test>
  Status split_code_points(Test test, SplitBehavior behavior) const {
    return split_pieces(
        [&](Span piece, std::vector<Span>& matches) -> Status {
          find_code_points(list.text, piece, test, matches);
          return {};
        },
        behavior, false);
  }

  /// Rewrites each piece: `write(piece text, is first of the input, out)`.
  template <typename Write>
  void rewrite(Write write) const {
    std::string text;
    text.reserve(list.text.size() + list.text.size() / 4);
    for (Span& piece : list.pieces) {
      const size_t begin = text.size();
      write(std::string_view(list.text).substr(piece.begin, piece.end - piece.begin), list.at_start && piece.begin == 0,
            text);
      piece = {begin, text.size()};
    }
    list.text = std::move(text);
  }

  Status operator()(const PreTokenizer::Split& split) const {
    return split_by(split.pattern, split.behavior, split.invert);
  }
  Status operator()(const PreTokenizer::ByteLevel& level) const {
    if (level.add_prefix_space) {
      rewrite([](std::string_view piece, bool, std::string& out) {
        if (!piece.starts_with(' ')) out += ' ';
        out += piece;
      });
    }
    if (level.use_regex) {
      GALVANI_TRY_VOID(split_by(SplitPattern::known(KnownPattern::kGpt2), SplitBehavior::kIsolated, false));
    }
    rewrite([](std::string_view piece, bool, std::string& out) { append_byte_level(out, piece); });
    return {};
  }
  Status operator()(const PreTokenizer::Digits& digits) const {
    return split_code_points([](CharClass c) { return c.numeric(); },
                             digits.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  Status operator()(const PreTokenizer::Metaspace& meta) const {
    using Prepend = PreTokenizer::Metaspace::Prepend;
    rewrite([&](std::string_view piece, bool first, std::string& out) {
      const bool wanted = meta.prepend == Prepend::kAlways || (meta.prepend == Prepend::kFirst && first);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(meta.replacement)) out += meta.replacement;
      for (const char c : piece) {
        if (c == ' ') {
          out += meta.replacement;
        } else {
          out += c;
        }
      }
    });
    if (!meta.split) return {};
    return split_by(SplitPattern::literal(meta.replacement), SplitBehavior::kMergedWithNext, false);
  }
  Status operator()(const PreTokenizer::Punctuation& punctuation) const {
    return split_code_points([](CharClass c) { return c.punctuation(); }, punctuation.behavior);
  }
  Status operator()(const PreTokenizer::Whitespace&) const {
    return split_pieces(
        [&](Span piece, std::vector<Span>& matches) -> Status {
          find_runs(
              list.text, piece, [](CharClass c) { return c.word()    ? 1
                                                         : c.space() ? 0
                                                                     : 2; }, matches);
          return {};
        },
        SplitBehavior::kRemoved, true);
  }
  Status operator()(const PreTokenizer::WhitespaceSplit&) const {
    return split_code_points([](CharClass c) { return c.space(); }, SplitBehavior::kRemoved);
  }
};

}  // namespace

void split_at(Span piece, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
              std::vector<Span>& out) {
  std::vector<Part> parts = tile(piece, matches, invert);
  switch (behavior) {
    case SplitBehavior::kRemoved: std::erase_if(parts, [](const Part& part) { return part.match; }); break;
    case SplitBehavior::kIsolated: break;
    case SplitBehavior::kContiguous: fold(parts, [](bool match, bool previous) { return match == previous; }); break;
    case SplitBehavior::kMergedWithPrevious:
      fold(parts, [](bool match, bool previous) { return match && !previous; });
      break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      fold(parts, [](bool match, bool previous) { return match && !previous; });
      std::reverse(parts.begin(), parts.end());
      break;
  }
  for (const Part& part : parts) {
    if (part.span.begin < part.span.end) out.push_back(part.span);
  }
}

Status PreTokenizer::apply(PieceList& list) const {
  for (const Step& step : steps_) GALVANI_TRY_VOID(std::visit(Apply{list}, step));
  return {};
}

}  // namespace galvani::text
