"""Small templates, one behaviour each, rendered by jinja2 for tests/data/jinja/cases.json."""

CONTEXT = {
    "name": "World", "empty": "", "text": "  Hello, Wörld! 日本語 😀  ", "lines": "one\ntwo\n\nthree\n",
    "n": 7, "zero": 0, "neg": -3, "big": 9007199254740993, "x": 2.5, "tiny": 1e-07, "huge": 1e+16, "one": 1.0,
    "yes": True, "no": False, "nothing": None, "html": "<b>&\"'</b>",
    "words": ["banana", "Apple", "cherry", "apple"], "numbers": [3, 1, 2, 3], "mixed": [1, "a", None, True, 2.5, [1], {"k": "v"}],
    "nested": {"a": {"b": [10, 20, {"c": "deep"}]}, "items": "shadow", "get": 1, "z": 1, "B": 2, "b c": 3},
    "people": [{"name": "Ann", "age": 30, "tags": ["x", "y"]}, {"name": "bob", "age": 25, "tags": []},
               {"name": "Cyd", "age": 30}],
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"},
                 {"role": "assistant", "content": "Hello <think>a</think> there"}],
    "schema": {"type": "object", "properties": {"q": {"type": "string", "description": "é \"x\" \n tab\t \u0001 \u007f"},
                                                "n": {"type": "integer", "enum": [1, 2]}}, "required": []},
    "tree": [{"v": "a", "kids": [{"v": "b", "kids": []}, {"v": "c", "kids": [{"v": "d", "kids": []}]}]}],
}

# Each is printed: {{ EXPRESSION }}.
EXPRESSIONS = r"""
1
-1
1.0
1e16
1e15
123456789.123
1e-4
0.00001
1.5e300
-0.0
1_000
0x1F
0o17
0b101
'a' "b" 'c'
'a\nb\tc\\d\'e\x41\u00e9\U0001F600\101\q'
"it's"
true
True
false
none
None
[]
[1, 'a', none, true, 2.5]
['it\'s', "q\"q", 'both\'"', 'é\n', '\x00\x7f\u200b']
(1,)
()
(1, 2)
1, 2
{}
{'a': 1, 'b': [1, {'c': none}]}
{1: 'a', none: 'b', true: 'c', 2.5: 'd', (1, 2): 'e'}
{1: 'a', 1.0: 'b', true: 'c'}
missing
missing.attr
missing['attr']
missing()
missing + 1
1 + missing
-missing
missing ~ 'x'
missing == missing2
missing == none
missing is defined
missing is undefined
not missing
missing or 'fallback'
missing and 'x'
missing|length
missing|list
missing|default('d')
missing|default
nothing|default('d')
nothing|default('d', true)
''|default('d', boolean=true)
zero|d(5, true)
name
name.upper()
name.nope
name.nope.more
name['upper']()
nested.a.b[0]
nested.a.b[-1].c
nested['a']['b'][2]['c']
nested.items
nested['items']
nested.get
nested['get']
nested.get('z')
nested.get('q')
nested.get('q', 9)
nested['b c']
nested.a.b.0
nested.a.b.7
nested.nope is undefined
nested.nope
people[0].name
people[5]
people[0]['name'][0]
name[0]
name[-1]
name[10]
text[2]
text[9]
text[-3]
numbers[1.0]
numbers['1']
1 + 2
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7 / 2
8 / 2
1 / 0
1 // 0
1 % 0
7.5 // 2
-7.5 // 2
7.5 % 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 0.5
2 ** 3 ** 2
-2 ** 2
2 * 3 + 4 * 5
(2 + 3) * 4
1 - 2 - 3
'a' + 'b'
'a' + 1
1 + 'a'
'a' * 3
3 * 'ab'
'a' * -1
[1] + [2]
[1, 2] * 2
(1,) + (2,)
[1] + (2,)
'a' ~ 1 ~ none ~ [1] ~ 2.0
1 ~ 2 + 3
1.0 + 2
0.1 + 0.2
1e308 * 10
3 * 0.1
true + true
+5
+yes
- -5
not true
not not 1
1 and 2
0 and 2
0 or 'x'
'' or [] or none
1 < 2
1 < 2 < 3
1 < 2 > 3
3 > 2 > 1 == true
'a' < 'b'
'a' < 1
none < 1
[1, 2] < [1, 3]
1 == 1.0
1 == true
1 == '1'
'a' == 'a'
none == none
[1, 2] == [1, 2]
[1] == (1,)
{'a': 1} == {'a': 1.0}
1 != 2
big == 9007199254740992.0
big
9223372036854775807
9223372036854775806 + 1
'ell' in 'hello'
'' in 'abc'
'z' not in 'abc'
1 in 'abc'
2 in [1, 2]
2.0 in [1, 2]
'a' in {'a': 1}
'a' in nested
none in [none]
1 in 5
missing in [1]
1 in missing
not 'a' in 'abc'
1 in [1] and 2 in [2]
1 if true else 2
1 if false else 2
1 if false
'x' if missing else 'y' if yes else 'z'
(1 if false) is undefined
(1 if no).x
text|trim
text|trim|length
text|length
'xxhixx'|trim('x')
5|trim
name|upper|lower|title
'hello wORLD-foo (bar)'|title
'hello wORLD'|capitalize
'ß'|upper
'ǆ'|title
'İ'|lower
'ΑΣ ΑΣΑ'|lower
'straße ﬁ'.upper()
'they\'re bill\'s'.title()
'they\'re bill\'s'|title
'aAa'.swapcase()
words|length
nested|length
5|length
none|length
words|count
words|join
words|join(', ')
numbers|join('-')
mixed|join('|')
people|join(', ', attribute='name')
people|map(attribute='age')|join(',')
people|map(attribute='tags.0')|join(',')
people|map(attribute='tags.0', default='none')|join(',')
people|map(attribute='nope')|list
people|map(attribute='nope', default=0)|list
words|map('upper')|list
words|map('replace', 'a', 'b')|list
words|map('nofilter')|list
words|map
numbers|map('string')|join
[[1, 2], [3]]|map('length')|sum
[[1, 2], [3]]|map('first')|list
words|first
words|last
[]|first
[]|last
[]|first|default('none')
'abc'|first
'abc'|last
'日本'|last
words|reverse|list
'abc日'|reverse
words|sort
words|sort(reverse=true)
words|sort(case_sensitive=true)
people|sort(attribute='age')|map(attribute='name')|list
people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list
[1, 'a']|sort
[3, 1.5, true]|sort
words|unique|list
numbers|unique|list
words|unique(case_sensitive=true)|list
people|unique(attribute='age')|map(attribute='name')|list
numbers|sum
people|sum(attribute='age')
numbers|sum(start=10)
words|sum
[]|sum
[[1], [2]]|sum(start=[])
numbers|min
numbers|max
words|min
words|max(case_sensitive=true)
[]|max
people|max(attribute='age')
numbers|select('odd')|list
numbers|select|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
numbers|reject('equalto', 3)|list
numbers|select('in', [1, 2])|list
numbers|select('>', 1)|list
people|selectattr('tags')|map(attribute='name')|list
people|selectattr('tags', 'defined')|map(attribute='name')|list
people|selectattr('age', 'equalto', 30)|map(attribute='name')|list
people|rejectattr('age', 'gt', 26)|map(attribute='name')|list
people|selectattr('name', 'in', ['Ann'])|list|length
messages|selectattr('role', 'equalto', 'user')|list|first
numbers|select('nope')|list
'abc'|list
nested|list
nested|items|list
nested.a|items
missing|items|list
5|items|list
{'b': 1, 'A': 2, 'c': 0}|dictsort
{'b': 1, 'A': 2, 'c': 0}|dictsort(true)
{'b': 1, 'A': 2, 'c': 0}|dictsort(by='value')
{'b': 1, 'A': 2, 'c': 0}|dictsort(reverse=true)
{'b': 1, 'A': 2}|dictsort(by='x')
[1]|dictsort
nested.items()
nested.a.items()
nested.a.keys()
nested.a.values()
nested.a.keys()|list
people|groupby('age')
people|groupby('age')|map(attribute='grouper')|list
people|groupby('tags.0', default='none')|map('first')|list
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3]|batch(2, 'x')|list
[1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3, 4, 5]|slice(3, 'x')|list
'hello world'|replace('o', '0')
'hello world'|replace('o', '0', 1)
'abc'|replace('', '-')
5|replace(5, 6)
'5'|int + 1
'5.7'|int
'x'|int
'x'|int(9)
'0x1f'|int(0, 16)
'0x1f'|int(base=0)
'ff'|int(base=16)
' 12_3 '|int
none|int
[1]|int(3)
2.9|int
-2.9|int
'1e3'|int
'inf'|int
'3.5'|float
'x'|float
'x'|float(1.5)
'1_0.5'|float
'nan'|float
'-inf'|float
7|float
-5|abs
-5.5|abs
'a'|abs
2.5|round
3.5|round
2.567|round(2)
2.567|round(1, 'floor')
2.512|round(1, 'ceil')
1234.5|round(-2)
7|round
15|round(-1)
25|round(-1)
5|round(0, 'nope')
0.15|round(1)
5|string
none|string
[1]|string
html|escape
html|e
html|safe
html|e|e
html|forceescape
(html|safe) + '<i>'
'<i>' + (html|safe)
('<'|safe) ~ '>'
[html|safe]
html|safe|upper
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, first=true, blank=true)
lines|indent('> ')
'a\r\nb'|indent
''|indent(2, true)
'abc'|center(9)
'abcd'|center(9)
'日'|center(4) ~ '|'
'%s is %d and %.2f'|format('x', 3.7, 2)
'%(a)s-%(b)03d'|format(a=1, b=2)
'%5s|%-5s|%05d|%+d|%x|%X|%#x|%o|%e|%g|%c|%r|%%'|format('a', 'b', 42, 5, 255, 255, 255, 8, 12345.678, 0.0001, 'c', 'r')
'%s'|format
'%d'|format('a')
'%s %s' % (1, 2)
'%s' % 5
'%s' % [1, 2]
'%s' % (1, 2)
'%.3f' % 2
'%s' % 'é'
'%5.2s|' % 'abc'
'a b  c'|wordcount
'héllo wörld foo'|truncate(10)
'héllo wörld foo'|truncate(9, true)
'héllo wörld foo bar'|truncate(9, false, '…', 0)
'a b&c/d?é'|urlencode
schema|tojson
schema|tojson(indent=4)
schema|tojson(indent=0)
schema|tojson(ensure_ascii=true)
schema|tojson(sort_keys=true)
schema|tojson(separators=(',', ':'))
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}]|tojson(indent=2)
mixed|tojson
(1, 2)|tojson
1.0|tojson
1e100|tojson
'</script> & \u2028 é'|tojson
missing|tojson
none|tojson
true|tojson
{1: 2, none: 3, true: 4, 2.5: 5}|tojson
words|map('upper')|tojson
numbers|tojson(indent='--')
words|attr('count')
name|attr('upper')
nested|attr('z')
name|nofilter
name is nofilter
name is string
n is string
n is number
yes is number
n is integer
yes is integer
x is float
x is integer
yes is boolean
n is boolean
nested is mapping
words is mapping
words is sequence
name is sequence
nested is sequence
n is sequence
words is iterable
n is iterable
missing is iterable
(words|map('upper')) is iterable
(words|map('upper')) is sequence
nothing is none
missing is none
nothing is not none
name is not defined
yes is true
1 is true
no is false
0 is false
n is odd
n is even
x is odd
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto 7
n is ne 7
n is gt 5
n is lt 5
n is ge 7
n is le 6
n is sameas 7
nothing is sameas none
n is in [7, 8]
'a' is in 'abc'
'abc' is lower
'ABC' is upper
'A1' is upper
'aB' is lower
name is callable
raise_exception is callable
name.upper is callable
html|safe is escaped
'upper' is filter
'odd' is test
name is string and n is number
name is string or missing
name is defined and name
n is odd is even
name is string == true
1 is number + 1
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.split(',', maxsplit=1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.rsplit(',')
' a  b '.split()
' a  b  c '.split(none, 1)
' a  b  c '.rsplit(none, 1)
'abc'.split('')
'aXXbXXc'.split('XX')
'aaa'.split('aa')
'aaa'.rsplit('aa')
''.split()
''.split(',')
'  x '.strip() ~ '|'
'  x '.lstrip() ~ '|'
'  x '.rstrip() ~ '|'
'xyhixy'.strip('yx')
'<think>\nabc'.lstrip('\n<think>')
'\u00a0\u3000x\u2003'.strip() ~ '|'
'hello'.startswith('he')
'hello'.startswith(('x', 'he'))
'hello'.startswith('l', 2)
'hello'.endswith('lo')
'hello'.endswith('l', 0, 4)
'hello'.startswith(5)
'hello'.find('l')
'hello'.find('l', 3)
'hello'.find('z')
'hello'.rfind('l')
'hello'.index('z')
'日本日'.find('日', 1)
'日本日'.rfind('日')
'hello'.count('l')
'hello'.count('')
'日本'.count('')
'hello'.replace('l', 'L')
'hello'.replace('l', 'L', 1)
'ab'.replace('', '-', 2)
'-'.join(['a', 'b'])
'-'.join([1])
'-'.join('abc')
'a\nb\r\nc\x0bd\n'.splitlines()
'a\nb\n'.splitlines(true)
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'12'.isdigit()
'1²'.isdigit()
'1²'.isdecimal()
'½'.isnumeric()
'ab1'.isalnum()
'aé日'.isalpha()
' \n'.isspace()
'Ab Cd'.istitle()
'abC'.islower()
'ABC1'.isupper()
'éa'.isascii()
'5'.zfill(3)
'-5'.zfill(4)
'a'.ljust(3, '.') ~ '|'
'a'.rjust(3) ~ '|'
'ab'.center(5, '*')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'a\tb'.expandtabs(4)
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{a} {b[k]} {c.d}'.format(a=1, b={'k': 2}, c={'d': 3})
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d} {:+} {:,} {:x} {:#x} {:b}'.format(42, 5, 1234567, 255, 255, 5)
'{:.2f} {:e} {:g} {:%} {:8.3f}|'.format(3.14159, 12345.6789, 0.00001, 0.25, 2.5)
'{!r} {{}}'.format('a')
'{} {}'.format(1)
'{x}'.format()
'{:d}'.format('a')
words.index('cherry')
words.index('nope')
words.count('apple')
words.append('x')
words.pop()
words.sort()
nested.update({'a': 1})
nested.pop('z')
nested.clear
name.__class__
name.__class__.__mro__
''['__class__']
words.__len__()
numbers[1:]
numbers[:-1]
numbers[::-1]
numbers[::2]
numbers[3:0:-1]
numbers[-100:100]
numbers[100:]
numbers[::0]
numbers['a':]
numbers[missing:]
name[1:3]
name[::-1]
'日本語テキスト'[::-2]
'日本語テキスト'[1:-2]
(1, 2, 3)[1:]
nested[1:]
n[1:]
range(5)
range(5)|list
range(2, 8, 3)|list
range(5, 0, -2)|list
range(0)
range(3)|length
range(5)[1]
range(5)[-1]
range(10)[2:8:2]
2 in range(3)
range(1, 2, 0)
range(100001)|length
range(100000)|length
range('a')
range(2.5)
range
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1), ['b', 2]])
dict([1])
namespace(a=1)
namespace(a=1).a
namespace({'x': 1}).x
namespace().nope
(namespace(a=[1, 'x']))
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %a %p %I %y %%')
strftime_now('%-d %e %f|%Z|%z')
raise_exception('boom: ' ~ n)
raise_exception('a' 'b')
raise_exception()
raise_exception
1(2)
name()
name.upper(1)
words|join(1, 2, 3)
words|join(nope=1)
words|first(1)
(words|map('upper'))[0]
(words|map('upper'))|length
words|map('upper')|first
words[0]|upper ~ words[1]|lower
1 + 2|string|length
-5|abs
(-5)|abs
2 + -3|abs
'a' in 'abc' and 'b' or 'c'
[1, 2, 3][1]
[[1, 2], [3, 4]][1][0]
{'a': {'b': 1}}.a.b
'abc'[1]
'a'.upper().lower().upper()
(1, 2, 3)[-1]
x
tiny
huge
one
1e22
1e21
123456789012345680.0
5e-324
1.7976931348623157e308
0.1
100.0
-1.5
3.0e0
yes
nothing
mixed
nested
people
text
[text]
loop
self
caller
lipsum
messages[0].role == 'system' and messages[0].content or 'none'
messages[-1]['content'].split('</think>')[-1].lstrip()
messages[1:]|length
messages[::-1][0].role
messages|map(attribute='role')|join('>')
messages|rejectattr('role', 'equalto', 'system')|list|length
messages|selectattr('role', 'eq', 'user')|map(attribute='content')|first
'role' in messages[0]
'tool_calls' in messages[0]
messages[0]['tool_calls'] is defined
messages[0].tool_calls
messages[0].tool_calls[0]
"" if loop is defined else "no loop"
1 {# comment #} + 2
(
  1
  + 2
)
[
  1,
  2,
]
{'a': 1,}
f(1, 2,)
{'}}': '%}'}['}}']
"{{ x }}"
'{% raw %}'
a b
1 +
(1
[1
{1: }
{'a' 1}
'unterminated
a.
a|
a is
1..2
a[
a[]
x = 1
007
00
1 if
@
$x
a && b
not
f(a=1, 2)
f(*[1])
f(**{'a': 1})
""".strip("\n")

# Whole templates.
TEMPLATES = [
    "", "plain", "trailing newline\n", "two newlines\n\n", "crlf\r\nline\rx\r\n",
    "{# comment #}x", "a {# c #} b", "a\n{# c #}\nb", "  {# c #}\nb", "a {#- c -#} b", "{# open", "{##}x", "{#-#}x", "{#--#} x", "a {#+ c #}\nb",
    "{{ name }}\n{{ n }}\n", "{{name}}", "{{-name-}}", " {{- name -}} x", "a\n{{- name -}}\n b", "a {{+ name }} b", "{{ name -}}\n\n x", "{{ name +}}\nx",
    "{% if yes %}\nA\n{% endif %}\nB", "  {% if yes %}  \n  A\n  {% endif %}  \nB", "x {% if yes %}\nA\n{% endif %}", "{%- if yes -%}\n A \n{%- endif -%}\n B",
    "\n  {%- if yes %}\n  A\n  {%- endif %}\n  B", "{%+ if yes %}A{% endif %}", "  {%+ if yes %}A{% endif %}", "{% if yes +%}\nA{% endif %}", "a\n\t {% if yes %}b{% endif %}\n c",
    "{% if yes %}\n\nA{% endif %}", "{% if yes %}\r\nA{% endif %}", "\u00a0{% if yes %}A{% endif %}", "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if no %}a{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if missing.x %}a{% endif %}", "{% if 1, 2 %}t{% endif %}", "{% if %}x{% endif %}", "{% if yes %}x", "{% endif %}", "{% else %}",
    "{% if yes %}x{% endfor %}", "{% nope %}", "{% %}", "{{ }}", "{{ name", "{% if yes", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% do 1 %}",
    "{% raw %}{{ x }} {% if %}{% endraw %}!", "{% raw %}\n a\n{% endraw %}\nb", "{%- raw -%}\n a {{\n{%- endraw -%}\n b", "{% raw %}x", "  {% raw %}  y  {% endraw %}  z", "{% raw -%}  y", "a\n  {% raw %}\nq\n  {% endraw %}\nz",
    "{% for i in numbers %}{{ i }},{% endfor %}", "{% for i in [] %}x{% else %}empty{% endfor %}", "{% for i in [1] %}x{% else %}empty{% endfor %}", "{% for i in missing %}x{% else %}empty{% endfor %}",
    "{% for i in 5 %}x{% endfor %}", "{% for i in none %}x{% endfor %}", "{% for c in 'aé日' %}[{{ c }}]{% endfor %}", "{% for k in nested %}{{ k }},{% endfor %}", "{% for k, v in nested.a.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for k, v in nested|items %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in {'a': 1, 'b': 2}|dictsort(reverse=true) %}{{ k }}{{ v }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}x{% endfor %}", "{% for a, b in [1] %}x{% endfor %}", "{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}", "{% for a in 1, 2, 3 %}{{ a }}{% endfor %}",
    "{% for i in numbers if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}", "{% for i in numbers if i > 9 %}x{% else %}none{% endfor %}", "{% for m in messages if m.role != 'system' %}{{ m.role }}{{ loop.last }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for i in numbers if not ns.stop %}{{ i }}{% set ns.stop = true %}{% endfor %}", "{% set ns = namespace(stop=false) %}{% for i in numbers if not ns.stop %}{{ i }}{{ loop.last }}{% set ns.stop = true %}{% endfor %}",
    "{% for i in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in 'abc' %}[{{ loop.previtem }}{{ i }}{{ loop.nextitem }}]{% endfor %}", "{% for i in 'abc' %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}", "{% for i in 'abcd' %}{{ loop.cycle('x', 'y', 'z') }}{% endfor %}",
    "{% for i in [1,1,2,2,1] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}", "{% for i in 'ab' %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.nope }}{% endfor %}", "{% for i in 'ab' %}{{ loop }}{% endfor %}", "{% for i in 'ab' %}{% for j in 'cd' %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in 'ab' %}{% set outer = loop %}{% for j in 'cd' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}", "{% for i in words|map('upper') %}{{ loop.length }}{{ i }} {% endfor %}", "{% for i in words|map('upper') %}{{ i }}{{ loop.last }} {% endfor %}",
    "{% set g = words|map('upper') %}{{ g|list }}{{ g|list }}", "{% set g = words|map('upper') %}{{ g|first }}{{ g|list }}", "{% set g = words|map('upper') %}{% for i in g %}{{ i }}{% break %}{% endfor %}{% for i in g %}[{{ i }}]{% endfor %}", "{% set g = words|map('upper') %}{{ 'APPLE' in g }}{{ g|list }}",
    "{% for i in numbers %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in numbers %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in 'ab' %}{% for j in 'cd' %}{% break %}{% endfor %}{{ i }}{% endfor %}", "{% break %}", "{% for i in 'a' %}{% break %}{% else %}e{% endfor %}",
    "{% for i in [3] recursive %}{{ i }}{% if i %}{{ loop([i - 1]) }}{% endif %}{% endfor %}", "{% for node in tree recursive %}{{ node.v }}{{ loop.depth }}{% if node.kids %}({{ loop(node.kids) }}){% endif %}{% endfor %}", "{% for i in 'a' %}{{ loop('b') }}{% endfor %}",
    "{% set x = 5 %}{{ x }}", "{% set x %}block {{ n }}{% endset %}[{{ x }}]", "{% set x | upper %}block{% endset %}{{ x }}", "{% set x | replace('o', '0') | upper %}block{% endset %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a = 1, 2 %}{{ a }}", "{% set x = %}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "{% for i in [1, 2] %}{{ x }}{% set x = i * 100 %}{{ x }} {% endfor %}", "{% for i in [1, 2] %}{% if i == 1 %}{% set q = 5 %}{% endif %}{{ q }};{% endfor %}",
    "{% for i in [1, 2] %}{% set name = 'in' %}{{ name }}{% endfor %}{{ name }}", "{% set ns = namespace(x=0) %}{% for i in numbers %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.y = 1 %}{{ ns.y }}{{ ns }}", "{% set nested.a = 1 %}", "{% set missing.a = 1 %}", "{% set ns = namespace(a=1) %}{% set ns['a'] = 2 %}",
    "{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ y }}{{ x }}", "{% set loop = 1 %}", "{% set true = 1 %}", "{% for loop in [1] %}{% endfor %}", "{% set x %}a\n{% endset %}\n{{ x }}|",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(b=5, a=4) }}|{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}", "{% macro m() %}  x\n{% endmacro %}[{{ m() }}]", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro a(n) %}a{% if n %}{{ b(n - 1) }}{% endif %}{% endmacro %}{% macro b(n) %}b{% if n %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(3) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 'set' %}{{ m() }}", "{% macro m() %}{{ later }}{% endmacro %}{{ m() }}{% set later = 'set' %}{{ m() }}", "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}", "{% macro m() %}{{ name }}{% endmacro %}{{ m() }}", "{% macro m(name) %}{{ name }}{% endmacro %}{{ m('x') }}{{ name }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{% endfor %}{{ m() }}", "{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}", "{% macro m() %}{{ loop.index }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}{{ m is callable }}", "{% macro m() %}x{% endmacro %}{{ m()|upper }}{{ m() ~ m() }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}", "{% macro m(x, y=x|length) %}{{ y }}{% endmacro %}{{ m('abc') }}", "{% macro m(*a) %}{% endmacro %}", "{% macro %}{% endmacro %}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ n }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% call 5 %}{% endcall %}", "{% for i in [1] %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{% filter upper %}abc {{ name }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% filter nope %}x{% endfilter %}", "{% filter trim %}\n x \n{% endfilter %}|", "{% set x = 1 %}{% filter upper %}{% set x = 2 %}{% endfilter %}{{ x }}",
    "{% generation %}abc{{ n }}{% endgeneration %}", "{% generation %}\nabc\n{% endgeneration %}\nx", "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", "{% for i in 'ab' %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}x",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% print name %}", "{% print(1, 2) %}",
    "{{ raise_exception('Only user and assistant roles are supported!') }}", "{% if yes %}{{ raise_exception('x') }}{% endif %}", "{% if no %}{{ raise_exception('x') }}{% endif %}ok", "{% if no %}{{ name|nofilter }}{% endif %}ok", "{% if no %}{{ name is notest }}{% endif %}ok",
    "{% set j = joiner(', ') %}{% for i in 'abc' %}{{ j() }}{{ i }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(1, 3) %}{{ i }}{% endfor %}",
    "{% for i in range(20) %}{% for j in range(20) %}{{ i * j if j == 3 }}{% endfor %}{% endfor %}", "{{ '{{' }}{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}}.a }}", "{{ {'a': {'b': {}}}}}", "{%if yes%}x{%endif%}", "{%\nif yes\n%}x{%\nendif\n%}", "{{\n name\n}}", "a { b } {c} { {", "{ {name} }", "{{ '\n' }}", "{{ 'a\r\nb' }}", "{{ \"tab\tin\" }}",
    "{%- for m in messages %}\n  {%- if loop.first %}\n    {{- 'first ' }}\n  {%- endif %}\n  {{- m.role + '\\n' }}\n{%- endfor %}\n", "{% for m in messages %}{{ m.role }}: {{ m['content'] }}\n{% endfor %}", "{% for m in messages -%}\n  {{ m.role }}\n{%- endfor %}", "{{ messages[0].content if messages[0].role == 'system' else 'none' }}",
    "{%- set ns = namespace(found=false, idx=-1) -%}\n{%- for m in messages[::-1] -%}\n{%- if m.role == 'user' and not ns.found -%}{%- set ns.found = true -%}{%- set ns.idx = messages|length - 1 - loop.index0 -%}{%- endif -%}\n{%- endfor -%}{{ ns.idx }}",
    "{{ messages[0]['content'] + '\n\n' + messages[1]['content'] }}", "{% set messages = messages[1:] %}{{ messages|length }}", "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set messages = messages[1:] %}{% else %}{% set sys = '' %}{% endif %}{{ sys }}{{ messages|length }}",
    "{% for i in [1,2,3] %}{{ i }}{{ ', ' if not loop.last }}{% endfor %}", "{{ 'a' if yes }}{{ 'b' if no }}", "{{ ('<' ~ name ~ '>') | e }}", "{{ [1, 2, 3] | map('string') | join(' + ') ~ ' = ' ~ [1, 2, 3] | sum }}", "{{ name.__class__ }}{{ name.__class__.x }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ raise_exception.__globals__ }}",
    "{% set x = {'a': [1, 2]} %}{{ x.a[0] }}{{ x['a'][1] }}{{ x.b }}{{ x.b is defined }}", "{% set t = (1, 2) %}{{ t[0] }}{{ t }}", "{% set s = 'abc' %}{{ s[0] ~ s[-1] }}", "{% if 'a' in ['a'] and not ('b' in ['a']) %}ok{% endif %}", "{% if not (yes and no) %}ok{% endif %}", "{% if messages is iterable and messages is not mapping and messages is not string %}ok{% endif %}",
    "{% macro props(p, depth=0) %}{%- for k, v in p | dictsort %}{{ '  ' * depth }}{{ k }}: {% if v is mapping %}\n{{ props(v, depth + 1) }}{% else %}{{ v }}\n{% endif %}{%- endfor %}{%- endmacro %}{{ props({'b': {'c': 1, 'a': {'z': 2}}, 'a': 3}) }}",
    "{% set a %}{% for i in 'ab' %}{{ i }}{% endfor %}{% endset %}{{ a|upper }}{{ a|length }}", "{% for x in [[1, 2], [3, 4]] %}{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}|{% endfor %}", "{% for i in [1, 2, 3] %}{% if loop.index is even %}e{% else %}o{% endif %}{% endfor %}", "{% for i in [] %}{% else %}{% set q = 1 %}{{ q }}{% endfor %}{{ q }}",
    "{{ name }}{% set name = 'changed' %}{{ name }}", "{{ namespace }}" if False else "{{ namespace is callable }}", "{% for k, v in [('a', 1)] + {'b': 2}.items()|list %}{{ k }}{{ v }}{% endfor %}", "{% set d = dict(nested.a, extra=1) %}{{ d }}", "{{ (messages|last).role }}", "{{ (people|first).tags|join }}", "{% for p in people|sort(attribute='name') %}{{ p.name }} {% endfor %}", "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}", "{% for age, group in people|groupby('age') %}{{ age }}={{ group|map(attribute='name')|join('+') }} {% endfor %}", "{% for row in [1,2,3,4]|batch(3, '-') %}{{ row|join }}/{% endfor %}",
]
