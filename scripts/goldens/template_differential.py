#!/usr/bin/env python3
"""Random templates through jinja2 and through Galvani's engine; prints every difference (needs jinja2 3.1).

usage: template_differential.py DRIVER [--count N] [--seed S]
DRIVER is the program template_driver (cmake --build build/cpu-release --target template_driver).
Exit 0 when nothing differs, 1 otherwise.
"""
import argparse
import json
import random
import re
import subprocess
import sys

import template_cases
import template_environment

NAMES = ["name", "empty", "text", "lines", "n", "zero", "neg", "x", "one", "yes", "no", "nothing", "words", "numbers",
         "mixed", "nested", "people", "messages", "schema", "missing", "v", "w"]
STRINGS = ["''", "'a'", "'Hello World'", "\"it's\"", "'a,b,,c'", "' pad\\n'", "'é日😀'", "'ß'", "'5'", "'-2.50'", "'%s-%d'",
           "'{}{}'", "'x\\ty'", "'<b>&'", "'role'", "'aXbX'"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "2.5", "0.1", "1e3", "100"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "list", "first", "last", "reverse|list", "sort",
           "unique|list", "join", "join(', ')", "join('-')", "string", "int", "float", "abs", "round", "round(1)",
           "tojson", "tojson(indent=2)", "default('d')", "default('d', true)", "items|list", "dictsort", "sum", "min",
           "max", "map('upper')|list", "map('string')|join", "map(attribute='name')|list", "select|list", "reject|list",
           "selectattr('role')|list", "map('length')|list", "rejectattr('name', 'equalto', 'bob')|list", "select('string')|list",
           "select('number')|list", "safe", "escape", "e", "replace('a', 'b')", "indent", "indent(2, true)", "wordcount",
           "batch(2)|list", "slice(2)|list", "count", "center(9)", "truncate(5)", "urlencode", "attr('upper')",
           "sort(reverse=true)", "groupby('age')", "map('first')|list", "format(1)", "int(3)", "sort(attribute='name')",
           "join(attribute='name')", "dictsort(by='value')", "max(attribute='age')", "batch(3, 0)|list", "unique(attribute='age')|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence",
         "true", "false", "even", "odd", "divisibleby(2)", "eq(1)", "gt 1", "in [1, 'a']", "lower", "upper", "callable",
         "not none", "not defined", "sameas none", "equalto 'a'", "ne 2"]
METHODS = ["upper()", "lower()", "strip()", "split()", "split(',')", "split('a', 1)", "startswith('a')", "endswith('c')",
           "replace('a', 'bb')", "title()", "capitalize()", "find('a')", "count('a')", "lstrip()", "rstrip('dl ')", "rsplit('o', 1)",
           "splitlines()", "isdigit()", "join(['p', 'q'])", "items()", "keys()", "values()", "get('a')", "get('zz', 4)",
           "index(1)", "zfill(5)", "ljust(6)", "partition('o')", "isalpha()", "swapcase()", "format(1, 2)", "center(8, '*')"]
ATTRIBUTES = ["a", "name", "role", "content", "b", "nope", "items", "upper"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, options):
        return self.r.choice(options)

    def expression(self, depth):
        if depth <= 0:
            return self.pick([lambda: self.pick(NAMES), lambda: self.pick(STRINGS), lambda: self.pick(NUMBERS),
                              lambda: self.pick(["true", "false", "none", "[]", "{}", "loop.index", "ns.a"])])()
        e = lambda: self.expression(depth - 1)
        choices = [
            lambda: e(),
            lambda: f"{e()} {self.pick(['+', '-', '*', '/', '//', '%', '~', '**'])} {e()}",
            lambda: f"{e()} {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {e()}",
            lambda: f"{e()} {self.pick(['and', 'or'])} {e()}",
            lambda: f"{e()} + {e()}",
            lambda: f"not {e()}", lambda: f"-{e()}", lambda: f"({e()})",
            lambda: f"{e()} if {e()} else {e()}", lambda: f"({e()} if {e()})",
            lambda: f"{e()}|{self.pick(FILTERS)}", lambda: f"{e()}|{self.pick(FILTERS)}", lambda: f"({e()})|{self.pick(FILTERS)}",
            lambda: f"{e()} is {self.pick(TESTS)}", lambda: f"({e()}).{self.pick(METHODS)}", lambda: f"{self.pick(NAMES)}.{self.pick(METHODS)}",
            lambda: f"{self.pick(NAMES)}.{self.pick(ATTRIBUTES)}", lambda: f"{self.pick(NAMES)}['{self.pick(ATTRIBUTES)}']",
            lambda: f"{self.pick(NAMES)}[{self.pick(['0', '-1', '1', '5'])}]", lambda: f"(({e()})|list)[{self.slice()}]", lambda: f"(({e()})|string)[{self.slice()}]", lambda: f"{self.pick(NAMES)}[{self.slice()}]",
            lambda: f"[{e()}, {e()}]", lambda: f"({e()}, {e()})", lambda: f"{{'a': {e()}, {self.pick(STRINGS)}: {e()}}}",
            lambda: f"range({self.pick(['3', '1, 4', '5, 0, -2', 'n'])})|list", lambda: f"dict(a={e()})", lambda: f"mac({e()})", lambda: f"mac({e()}, q={e()})",
        ]
        return self.pick(choices)()

    def slice(self):
        part = lambda: self.pick(["", "", "1", "-1", "2", "-2", "10"])
        return f"{part()}:{part()}" + (f":{self.pick(['1', '-1', '2', '-2'])}" if self.r.random() < 0.4 else "")

    def space(self):
        return self.pick(["", "", " ", "\n", "\n  ", "x", " y ", "\n\n", "\t\n z"])

    def block(self, text):
        return "{%" + self.pick(["", "", "-", "+"]) + f" {text} " + self.pick(["", "", "-", "+"]) + "%}"

    def output(self, depth):
        return "{{" + self.pick(["", "", "-"]) + f" {self.expression(depth)} " + self.pick(["", "", "-"]) + "}}"

    def statement(self, depth):
        if depth <= 0:
            return self.pick([lambda: self.output(2), lambda: self.output(3), lambda: self.space() + "t" + self.space()])()
        body = lambda: self.body(depth - 1)
        e = lambda: self.expression(2)
        choices = [
            lambda: self.output(3), lambda: self.output(2),
            lambda: self.block(f"if {e()}") + body() + self.block("endif"),
            lambda: self.block(f"if {e()}") + body() + self.block(f"elif {e()}") + body() + self.block("else") + body() + self.block("endif"),
            lambda: self.block(f"for {self.pick(['v', 'w'])} in {self.pick(['words', 'numbers', 'mixed', 'people', 'nested', e()])}") + body() + self.block("endfor"),
            lambda: self.block(f"for v in {self.pick(['numbers', 'words', 'mixed'])} if v is {self.pick(TESTS)}") + body() + self.block("else") + body() + self.block("endfor"),
            lambda: self.block(f"for v, w in {self.pick(['nested.items()', 'nested|dictsort', 'schema|items', '[(1, 2), (3, 4)]'])}") + "{{ v }}{{ w }}" + body() + self.block("endfor"),
            lambda: self.block("for v in numbers") + "{{ loop." + self.pick(["index", "index0", "revindex", "first", "last", "length", "previtem", "nextitem", "cycle(1, 2)", "changed(v)", "depth"]) + " }}" + body() + self.block("endfor"),
            lambda: self.block(f"set v = {e()}"), lambda: self.block(f"set ns.a = {e()}"), lambda: self.block("set w") + body() + self.block("endset"),
            lambda: self.block("for v in numbers") + self.block(f"if {e()}") + self.block(self.pick(["break", "continue"])) + self.block("endif") + body() + self.block("endfor"),
            lambda: self.block("filter " + self.pick(["upper", "trim", "title", "replace('a', 'o')"])) + body() + self.block("endfilter"),
            lambda: self.block("call cal()") + body() + self.block("endcall"), lambda: self.block("generation") + body() + self.block("endgeneration"),
            lambda: self.block(f"with v = {e()}") + body() + self.block("endwith"), lambda: "{#" + self.pick(["", "-", "+"]) + " c " + self.pick(["", "-"]) + "#}",
            lambda: self.block("raw") + "{{ a " + self.space() + self.block("endraw"),
        ]
        return self.pick(choices)()

    def body(self, depth):
        return "".join(self.space() + self.statement(depth) for _ in range(self.r.randint(1, 3))) + self.space()

    def template(self):
        head = "{% set ns = namespace(a=1) %}{% macro mac(p, q='Q') %}{{ p }}{{ q }}{{ v }}{% endmacro %}{% macro cal() %}<{{ caller() }}>{% endmacro %}"
        return head + (self.output(self.r.randint(1, 4)) if self.r.random() < 0.5 else self.body(self.r.randint(0, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    env = template_environment.environment()
    driver = subprocess.Popen([args.driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    generator, context = Generator(args.seed), {k: v for k, v in template_cases.CONTEXT.items() if k != "big"}
    differences = texts = beyond = 0
    for _ in range(args.count):
        template = generator.template()
        wanted = template_environment.render(template, context, env)
        driver.stdin.write(json.dumps({"template": template, "context": context, "now": template_environment.NOW}) + "\n")
        driver.stdin.flush()
        got = json.loads(driver.stdout.readline())
        texts += "text" in wanted
        if "text" in wanted and (" at 0x" in wanted["text"] or re.search(r"<class|\d{19}|\dj\)", wanted["text"])):
            continue  # an address, or an integer beyond 64 bits
        if got.get("code") == "out of range" and "64" in got["error"] or "0 bytes" in got.get("error", ""):
            beyond += 1
            continue
        same = got.get("text") == wanted["text"] if "text" in wanted else "error" in got
        if not same:
            differences += 1
            print(json.dumps({"template": template, "wanted": wanted, "got": got}, ensure_ascii=False))
    driver.stdin.close()
    driver.wait()
    print(f"{args.count} templates, {texts} rendered, {beyond} beyond 64 bits, {differences} differences", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
