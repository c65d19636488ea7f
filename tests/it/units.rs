//! Control-flow graphs and logic units, through the public door.

mod generated;
mod real;

use unsay::program::cfg::{self, EdgeLabel, GraphError, Role};
use unsay::program::picture;
use unsay::program::units::{ReadOptions, Reading, Unit, by_line, read};

fn plain(source: &str) -> Reading {
    read(source, &ReadOptions::default())
}

/// The units of a program that has no syntax errors.
fn units(source: &str) -> Vec<Unit> {
    let reading = plain(source);
    assert_eq!(reading.syntax_errors, [], "{source}");
    reading.units
}

/// Asserts the units: label, lines and text of each.
fn assert_units(source: &str, expected: &[(&str, &[usize], &str)]) {
    let units = units(source);
    for (unit, (label, lines, text)) in units.iter().zip(expected) {
        assert_eq!(unit.text, *text, "unit {}", unit.id);
        assert_eq!(
            (unit.label.as_str(), unit.lines.as_slice()),
            (*label, *lines),
            "unit {}",
            unit.id
        );
    }
    assert_eq!(units.len(), expected.len(), "{units:#?}");
    assert!(units.iter().enumerate().all(|(at, unit)| unit.id == at + 1));
}

fn texts(source: &str) -> Vec<String> {
    units(source).into_iter().map(|unit| unit.text).collect()
}

#[test]
fn a_chain_of_branches_is_one_unit_for_each_side() {
    let source = "\
def triangle(n, k):
    if k < 0 or k > n:
        return 0
    elif k == 0:
        return 1
    else:
        return triangle(n - 1, k - 1) + triangle(n - 1, k)
";
    assert_units(
        source,
        &[
            (
                "entry",
                &[1, 2, 3],
                "#ENTER FUNCTION# `def triangle(n, k)` {\n#BRANCH# `k < 0 or k > n` holds\nRUN `return 0`",
            ),
            (
                "branch",
                &[2, 4, 5],
                "#BRANCH# `k < 0 or k > n` does not hold\n#BRANCH# `k == 0` holds\nRUN `return 1`",
            ),
            (
                "branch",
                &[4, 7],
                "#BRANCH# `k == 0` does not hold\n\
                 RUN `return triangle(n - 1, k - 1) + triangle(n - 1, k)`\n\
                 } #EXIT FUNCTION# `triangle`",
            ),
        ],
    );
}

#[test]
fn code_after_an_if_that_falls_through_is_after_the_join() {
    let source = "\
def clip(x):
    if x > 9:
        x = 9
    y = x + 1
    return y
";
    assert_units(
        source,
        &[
            (
                "entry",
                &[1, 2, 3],
                "#ENTER FUNCTION# `def clip(x)` {\n#BRANCH# `x > 9` holds\nRUN `x = 9`",
            ),
            (
                "block",
                &[4, 5],
                "#BRANCH END# `x > 9`\nRUN [\n`y = x + 1`\n`return y`\n]\n} #EXIT FUNCTION# `clip`",
            ),
        ],
    );
}

#[test]
fn a_loop_with_break_ends_before_the_code_after_it() {
    let source = "\
def first_even(xs):
    found = None
    for x in xs:
        if x % 2:
            continue
        found = x
        break
    return found
";
    assert_units(
        source,
        &[
            ("entry", &[1, 2], "#ENTER FUNCTION# `def first_even(xs)` {\nRUN `found = None`"),
            ("loop begin", &[3], "#LOOP BEGIN# `for x in xs`"),
            ("branch", &[4, 5], "#BRANCH# `x % 2` holds\nRUN `continue`"),
            (
                "branch",
                &[4, 6, 7],
                "#BRANCH# `x % 2` does not hold\nRUN [\n`found = x`\n`break`\n]",
            ),
            ("loop end", &[3], "#LOOP END# `for x in xs`"),
            ("block", &[8], "RUN `return found`\n} #EXIT FUNCTION# `first_even`"),
        ],
    );
}

const TRY: &str = "\
def read(path):
    try:
        with open(path) as f:
            text = f.read()
    except FileNotFoundError:
        return \"\"
    except OSError as e:
        raise ValueError(path) from e
    else:
        text = text.strip()
    finally:
        done = True
    return text
";

#[test]
fn every_section_of_a_try_is_labelled() {
    assert_units(
        TRY,
        &[
            (
                "entry",
                &[1, 2, 3, 4],
                "#ENTER FUNCTION# `def read(path)` {\n#TRY#\n#WITH# `with open(path) as f`\n\
                 RUN `text = f.read()`",
            ),
            ("except", &[5, 6], "#EXCEPT FileNotFoundError#\nRUN `return \"\"`"),
            ("except", &[7, 8], "#EXCEPT OSError as e#\nRUN `raise ValueError(path) from e`"),
            ("else", &[9, 10], "#ELSE# nothing was raised\nRUN `text = text.strip()`"),
            ("finally", &[11, 12], "#FINALLY# in every case\nRUN `done = True`\n#TRY END#"),
            ("block", &[13], "RUN `return text`\n} #EXIT FUNCTION# `read`"),
        ],
    );
}

#[test]
fn dollars_and_backticks_split_nothing_and_cases_are_branches() {
    let source = "\
cost = \"a$b`c\"
match len(cost):
    case 5:
        ans = 1
    case _:
        ans = 2
print(ans)
";
    assert_units(
        source,
        &[
            ("block", &[1], "RUN ``cost = \"a$b`c\"``"),
            (
                "match",
                &[2, 3, 4],
                "#MATCH# `match len(cost)`\n#CASE# `case 5` matches\nRUN `ans = 1`",
            ),
            (
                "match",
                &[2, 5, 6],
                "#MATCH# `match len(cost)`\n#CASE# `case _` matches, no case above does\nRUN `ans = 2`",
            ),
            ("block", &[7], "#MATCH END# `match len(cost)`\nRUN `print(ans)`"),
        ],
    );
}

#[test]
fn an_inner_function_a_comprehension_and_the_else_of_a_loop() {
    let source = "\
def outer(xs):
    def double(v):
        return 2 * v
    ys = [double(x) for x in xs if x]
    while ys:
        ys.pop()
    else:
        ys = [0]
    return ys
";
    assert_units(
        source,
        &[
            (
                "entry",
                &[1, 2, 3],
                "#ENTER FUNCTION# `def outer(xs)` {\n#ENTER FUNCTION# `def double(v)` {\n\
                 RUN `return 2 * v`\n} #EXIT FUNCTION# `double`",
            ),
            ("block", &[4], "RUN `ys = [double(x) for x in xs if x]`"),
            ("loop begin", &[5], "#LOOP BEGIN# `while ys`"),
            ("block", &[6], "RUN `ys.pop()`"),
            ("loop end", &[5], "#LOOP END# `while ys`"),
            ("loop else", &[7, 8], "#LOOP ELSE# `while ys` ended without `break`\nRUN `ys = [0]`"),
            (
                "block",
                &[9],
                "#LOOP ELSE END# `while ys`\nRUN `return ys`\n} #EXIT FUNCTION# `outer`",
            ),
        ],
    );
}

#[test]
fn classes_decorators_and_async_functions_keep_their_headers() {
    let source = "\
@dataclass
class A(Base):
    '''Doc.'''
    n: int = 0  # a comment

    @property
    async def f(self,  # first
                *, key=None) -> int:
        \"doc\" 'string'
        async with self.lock as l, other:
            yield await self.n
        async for x in self:
            del x
        global g; nonlocal h
";
    assert_units(
        source,
        &[
            ("class", &[1, 2, 4], "#ENTER CLASS# `@dataclass\nclass A(Base)` {\nRUN `n: int = 0`"),
            (
                "entry",
                &[6, 7, 8, 10, 11],
                "#ENTER FUNCTION# `@property\nasync def f(self,\n            *, key=None) -> int` {\n\
                 #WITH# `async with self.lock as l, other`\nRUN `yield await self.n`",
            ),
            (
                "loop begin",
                &[12],
                "#WITH END# `async with self.lock as l, other`\n#LOOP BEGIN# `async for x in self`",
            ),
            ("block", &[13], "RUN `del x`"),
            ("loop end", &[12], "#LOOP END# `async for x in self`"),
            (
                "block",
                &[14],
                "RUN [\n`global g`\n`nonlocal h`\n]\n} #EXIT FUNCTION# `f`\n} #EXIT CLASS# `A`",
            ),
        ],
    );
}

#[test]
fn a_conditional_return_is_a_branch() {
    let source = "def sign(x):\n    return (1 if x > 0 else -1 if x < 0 else 0)\n";
    assert_eq!(
        texts(source),
        [
            "#ENTER FUNCTION# `def sign(x)` {\n#BRANCH# `x > 0` holds\nRUN `return 1`",
            "#BRANCH# `x > 0` does not hold\n#BRANCH# `x < 0` holds\nRUN `return -1`",
            "#BRANCH# `x < 0` does not hold\nRUN `return 0`\n} #EXIT FUNCTION# `sign`",
        ]
    );
}

#[test]
fn a_lambda_is_a_statement_and_an_assertion_ends_its_block() {
    let source =
        "import a, b\nfrom c import *\nf = lambda x: x + 1\nassert f(1) == 2, 'no'\npass\n";
    assert_eq!(
        texts(source),
        [
            "RUN [\n`import a, b`\n`from c import *`\n`f = lambda x: x + 1`\n`assert f(1) == 2, 'no'`\n]",
            "RUN `pass`",
        ]
    );
}

#[test]
fn code_after_a_side_that_leaves_is_the_false_side() {
    let source = "\
for x in xs:
    if a:
        continue
    elif b:
        raise E
    c()
    if d:
        break
    else:
        e()
    f()
    if g:
        continue
done()
";
    assert_eq!(
        texts(source)[1..],
        [
            "#BRANCH# `a` holds\nRUN `continue`",
            "#BRANCH# `a` does not hold\n#BRANCH# `b` holds\nRUN `raise E`",
            "#BRANCH# `b` does not hold\nRUN `c()`",
            "#BRANCH# `d` holds\nRUN `break`",
            "#BRANCH# `d` does not hold\nRUN `e()`",
            "#BRANCH END# `d`\nRUN `f()`",
            "#BRANCH# `g` holds\nRUN `continue`",
            "#LOOP END# `for x in xs`",
            "RUN `done()`",
        ]
    );
}

#[test]
fn unreachable_code_is_shown_once_and_said_to_be_unreachable() {
    let source = "\
def f(x):
    if x:
        return 1
        dead(1)
    else:
        while True:
            pass
        dead(2)
    dead(3)
    if y:
        dead(4)
    dead(5)
";
    assert_eq!(
        texts(source),
        [
            "#ENTER FUNCTION# `def f(x)` {\n#BRANCH# `x` holds\nRUN `return 1`",
            "#UNREACHABLE# no path leads here\nRUN `dead(1)`",
            "#BRANCH# `x` does not hold\n#LOOP BEGIN# `while True`",
            "RUN `pass`",
            "#LOOP END# `while True`",
            "#UNREACHABLE# no path leads here\nRUN `dead(2)`",
            "#UNREACHABLE# no path leads here\nRUN `dead(3)`",
            "#BRANCH# `y` holds\nRUN `dead(4)`",
            "#BRANCH END# `y`\nRUN `dead(5)`\n} #EXIT FUNCTION# `f`",
        ]
    );
}

#[test]
fn code_after_a_with_that_returns_can_run() {
    let source = "\
def f(s):
    with suppress(ValueError):
        return int(s)
    return None
";
    assert_eq!(
        texts(source)[1],
        "#WITH END# `with suppress(ValueError)`\nRUN `return None`\n} #EXIT FUNCTION# `f`"
    );
}

#[test]
fn every_try_is_closed_and_dead_code_in_its_else_is_kept() {
    let source = "\
try:
    a()
except E:
    b()
else:
    try:
        c()
    finally:
        d()
    raise F
    dead()
finally:
    e()
";
    assert_eq!(
        texts(source)[2..],
        [
            "#ELSE# nothing was raised\n#TRY#\nRUN `c()`",
            "#FINALLY# in every case\nRUN `d()`\n#TRY END#",
            "RUN `raise F`",
            "#UNREACHABLE# no path leads here\nRUN `dead()`",
            "#FINALLY# in every case\nRUN `e()`\n#TRY END#",
        ]
    );
}

#[test]
fn a_match_whose_cases_leave_goes_on_where_none_matches() {
    let source = "\
def f(x):
    match x:
        case [a, *_] if a > 1: return a
        case {'k': v}: return v
    return 0
";
    assert_eq!(
        texts(source)[1..],
        [
            "#MATCH# `match x`\n#CASE# `case {'k': v}` matches, no case above does\nRUN `return v`",
            "#MATCH# `match x`: no case matches\nRUN `return 0`\n} #EXIT FUNCTION# `f`",
        ]
    );
}

#[test]
fn statements_of_several_lines_stay_whole() {
    let source = "\
def f():
    x = [1,  # one

         # two
         2]
    text = \"\"\"a
    # b

  c ``` d\"\"\"
    y = 1 + \\
        2
";
    assert_eq!(
        texts(source),
        ["#ENTER FUNCTION# `def f()` {\nRUN [\n`x = [1,\n     2]`\n\
          ````text = \"\"\"a\n    # b\n\n  c ``` d\"\"\"````\n\
          `y = 1 + \\\n    2`\n]\n} #EXIT FUNCTION# `f`"]
    );
    assert_eq!(units(source)[0].lines, [1, 2, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn only_docstrings_and_comments_are_dropped() {
    let source = "#!/usr/bin/env python\n'''doc'''\n'not doc'\ndef f():\n    f'no {doc}'\ndef g():\n    # c\n    r'doc'\n";
    assert_eq!(
        texts(source),
        [
            "RUN `'not doc'`",
            "#ENTER FUNCTION# `def f()` {\nRUN `f'no {doc}'`\n} #EXIT FUNCTION# `f`",
            "#ENTER FUNCTION# `def g()` {\n} #EXIT FUNCTION# `g`",
        ]
    );
}

#[test]
fn a_stub_of_the_entry_point_is_removed_only_before_the_real_one() {
    let stub = "def f(x: int) -> int:\n    '''Doc.'''\n";
    let real = "def f(x):\n    return x\n";
    let options = ReadOptions { entry_point: Some("f"), ..ReadOptions::default() };
    let count = |source: &str| read(source, &options).units.len();
    assert_eq!(count(&format!("{stub}{real}")), 1);
    assert_eq!(count(&format!("import m\n{stub}import m\n{real}")), 3);
    assert_eq!(count(&format!("def f(x):\n    pass\n{real}")), 1);
    assert_eq!(count(stub), 1);
    assert_eq!(count(&format!("{real}{stub}")), 2, "the stub hides the function");
    assert_eq!(count(&format!("{}{real}", stub.replace('f', "g"))), 2, "another function");
    assert_eq!(plain(&format!("{stub}{real}")).units.len(), 2);
}

#[test]
fn a_long_single_unit_is_divided_in_three() {
    let math = ReadOptions { split_long_single_unit: true, ..ReadOptions::default() };
    let lines = |n: usize| (0..n).map(|i| format!("x{i} = {i}\n")).collect::<String>();
    let sizes = |source: &str, options: &ReadOptions| -> Vec<usize> {
        read(source, options).units.iter().map(|unit| unit.lines.len()).collect()
    };
    assert_eq!(sizes(&lines(9), &math), [9]);
    assert_eq!(sizes(&lines(10), &math), [4, 4, 2]);
    assert_eq!(sizes(&lines(12), &math), [4, 4, 4]);
    assert_eq!(sizes(&lines(12), &ReadOptions::default()), [12]);
    assert_eq!(sizes(&format!("{}if x0:\n    y = 1\n", lines(12)), &math), [12, 2]);
    let ten = read(&lines(10), &math).units;
    assert_eq!(ten[2].text, "RUN [\n`x8 = 8`\n`x9 = 9`\n]");
    let long = format!("{}y = [\n1,\n2,\n3,\n]\nz = 1\n", lines(5));
    assert_eq!(sizes(&long, &math), [4, 6, 1], "a statement is not cut");
}

#[test]
fn an_edge_for_every_way_out_of_a_loop() {
    let source =
        "for x in xs:\n    if x:\n        break\n    elif y:\n        continue\n    z()\nw()\n";
    let program = cfg::parse(source).unwrap();
    let graph = program.graph(cfg::Program::MODULE);
    let guard = graph.blocks.iter().position(|b| matches!(b.role, Role::Loop { .. })).unwrap();
    let end = graph.blocks.iter().position(|b| matches!(b.role, Role::LoopEnd { .. })).unwrap();
    let labels = |to: usize| -> Vec<EdgeLabel> {
        graph.edges().filter(|(_, edge)| edge.to.0 == to).map(|(_, edge)| edge.label).collect()
    };
    assert_eq!(labels(end), [EdgeLabel::LoopExit, EdgeLabel::Break]);
    assert_eq!(labels(guard), [EdgeLabel::Next, EdgeLabel::Continue, EdgeLabel::Repeat]);
    assert_eq!(labels(graph.exit.0), [EdgeLabel::Next]);
}

#[test]
fn a_break_skips_the_else_of_its_loop() {
    let source = "try:\n    while a:\n        break\n    else:\n        b()\nfinally:\n    c()\n";
    let program = cfg::parse(source).unwrap();
    let graph = program.graph(cfg::Program::MODULE);
    let jump = graph.edges().find(|(_, edge)| edge.label == EdgeLabel::Break).unwrap().1;
    assert!(matches!(graph.block(jump.to).role, Role::Join { .. }), "{graph:?}");
    assert!(!texts(source).concat().contains("LOOP ELSE END"), "nothing follows in the body");
}

#[test]
fn a_return_goes_through_finally() {
    let program = cfg::parse(TRY).unwrap();
    let graph = &program.graphs[1];
    let finally = graph.blocks.iter().position(|b| matches!(b.role, Role::Finally { .. })).unwrap();
    let into: Vec<EdgeLabel> =
        graph.edges().filter(|(_, e)| e.to.0 == finally).map(|(_, e)| e.label).collect();
    for label in [EdgeLabel::Return, EdgeLabel::Exception, EdgeLabel::Next] {
        assert!(into.contains(&label), "{into:?}");
        let body = graph.block(graph.blocks[finally].edges[0].to);
        assert!(body.edges.iter().any(|edge| edge.label == label), "{body:?}");
    }
    let handler = graph.blocks.iter().find(|b| matches!(b.role, Role::Handler { .. })).unwrap();
    assert!(handler.edges.iter().all(|edge| edge.to.0 == finally), "{handler:?}");
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
    let cases: &[(&str, usize, usize, usize)] = &[
        ("def f(x):\n    return x\ny = (1,\n", 3, 1, 2),
        ("x = = 1\ny = 2\n", 1, 5, 1),
        ("if x:\ny = 1\n", 1, 1, 1),
        ("x = 1\n    y = 2\nz = 3\n", 2, 5, 1),
        ("print 'a'\n", 1, 1, 1),
        ("break\ny = 1\n", 1, 1, 1),
        ("é = 'é'; return 1\n", 1, 10, 1),
        ("x = 'a\0b'\ny = 1\n", 1, 7, 1),
    ];
    for (source, line, column, count) in cases {
        let reading = plain(source);
        let places: Vec<_> = reading.syntax_errors.iter().map(|e| (e.line, e.column)).collect();
        assert!(places.contains(&(*line, *column)), "{source:?}: {:?}", reading.syntax_errors);
        assert_eq!(reading.units.len(), *count, "{source:?}: {:#?}", reading.units);
        assert!(reading.units.iter().all(|unit| !unit.text.contains("UNREACHABLE")));
    }
    let cut = "import math\ndef f(n):\n    for i in n:\n        if i:\n            g(i)\n        elif i ==";
    let reading = plain(cut);
    assert_eq!(reading.units.len(), 5, "{:#?}", reading.units);
    assert_eq!(reading.syntax_errors[0].line, 6);
}

#[test]
fn line_ends_tabs_and_marks_of_other_systems() {
    let source = "def f(x):\n\tif x:\n\t\treturn 'a'\n\treturn '''b\nc'''\n";
    let expected = units(source);
    assert_eq!(expected.len(), 2);
    assert_eq!(units(&source.replace('\n', "\r\n")), expected);
    assert_eq!(units(&source.replace('\n', "\r")), expected);
    assert_eq!(units(&format!("\u{feff}{source}")), expected);
    assert_eq!(units(&format!("\x0c{source}")), expected);
}

#[test]
fn nothing_gives_no_units() {
    for source in ["", "\n\n", "  \t\n", "# comment", "\u{feff}", "'''doc'''\n"] {
        assert_eq!(units(source), [], "{source:?}");
    }
}

#[test]
fn too_deep_nesting_is_typed_and_read_in_thirds() {
    let nested = |depth: usize| -> String {
        let ifs = (0..depth).map(|i| format!("{}if x{i}:\n", " ".repeat(i)));
        ifs.collect::<String>() + &" ".repeat(depth) + "y = 1\n"
    };
    assert_eq!(units(&nested(98)).len(), 1);
    assert_eq!(cfg::parse(&nested(130)), Err(GraphError::TooDeep { line: 101 }));
    assert_eq!(cfg::parse(&nested(1000)), Err(GraphError::Indentation { line: 257 }));
    let reading = plain(&nested(130));
    assert_eq!(reading.units.iter().map(|u| u.lines.len()).collect::<Vec<_>>(), [44, 44, 43]);
    assert!(reading.units[1].text.starts_with("RUN [\n`"), "{}", reading.units[1].text);
    assert_eq!(reading.syntax_errors[0].line, 101);
}

#[test]
fn long_and_deep_programs_need_no_stack() {
    let sum = format!("x = {}\n", vec!["1"; 100_000].join(" + "));
    assert_eq!(units(&sum).len(), 1);
    let brackets = format!("x = {}1{}\n", "(".repeat(20_000), ")".repeat(20_000));
    assert_eq!(units(&brackets).len(), 1);
    let conditional = format!("def f(x):\n    return {}0\n", "1 if x else ".repeat(2_000));
    assert_eq!(units(&conditional).len(), 2_001);
    let chain = format!("if x:\n    y = 0\n{}", "elif x:\n    y = 1\n".repeat(5_000));
    assert_eq!(units(&chain).len(), 5_001);
    let straight: String = (0..5_000).map(|i| format!("x{i} = {i}\n")).collect();
    assert_eq!(units(&straight)[0].lines.len(), 5_000);
    let branches = "if x:\n    y = 1\n".repeat(2_500);
    assert_eq!(units(&branches).len(), 2_500);
}

#[test]
fn the_line_by_line_ablation_keeps_indentation() {
    let lines = by_line("def f(x):\r\n\r\n    if x:  \r\n        return 1\r\n");
    let told: Vec<_> = lines.iter().map(|u| (u.id, u.lines[0], u.text.as_str())).collect();
    assert_eq!(told, [(1, 1, "def f(x):"), (2, 3, "    if x:"), (3, 4, "        return 1")]);
    assert_eq!(by_line(" \n"), []);
}

/// The picture is well-formed XML that names every scope and every statement, whatever text they hold.
#[test]
fn the_picture_of_a_program_shows_every_statement() {
    let source = "import os\n\
                  def area(r, names=\"<&>\"):\n\
                  \x20   if r < 0 and names != '\\t\"':\n\
                  \x20       raise ValueError(r)\n\
                  \x20   for n in range(3):\n\
                  \x20       if n == 2: break\n\
                  \x20   else:\n\
                  \x20       r += 1\n\
                  \x20   try:\n\
                  \x20       return r ** 2\n\
                  \x20   finally:\n\
                  \x20       print('done')\n\
                  class Disc:\n\
                  \x20   size = area(2)\n";
    let svg = picture::svg(&cfg::parse(source).unwrap());
    for shown in [
        ">module<",
        ">function area<",
        ">class Disc<",
        ">import os<",
        ">def area(r, names=\"&lt;&amp;&gt;\")<",
        ">if r &lt; 0 and names != '\\t\"'<",
        ">raise ValueError(r)<",
        ">does not hold<",
        ">for n in range(3)<",
        ">break<",
        ">r += 1<",
        ">return r ** 2<",
        ">print('done')<",
        ">size = area(2)<",
    ] {
        assert!(svg.contains(shown), "{shown}\n{svg}");
    }
    balanced(&svg);
    // Long lines and long blocks are cut, and that is said.
    let long = format!("x = '{}'\n{}", "y".repeat(200), "z = 1\n".repeat(60));
    let svg = picture::svg(&cfg::parse(&long).unwrap());
    assert!(svg.contains("yyy…<") && svg.contains("… 38 more lines"), "{svg}");
    balanced(&svg);
    balanced(&picture::svg(&cfg::parse("").unwrap()));
    let odd = picture::svg(&cfg::parse("x = '\u{1}\u{ffff}'\ny = (").unwrap());
    assert!(!odd.contains(['\u{1}', '\u{ffff}']));
    balanced(&odd);
    // Each block once, and no program is too long or too branched for it.
    let branched = "if x > 1:\n    x -= 1\n".repeat(5_000);
    let program = cfg::parse(&branched).unwrap();
    let svg = picture::svg(&program);
    assert_eq!(svg.matches("class=\"block\"").count(), program.graphs[0].blocks.len());
    assert_eq!(svg.matches(">does not hold<").count(), 5_000);
}

/// Every element that is opened is closed, in order.
fn balanced(xml: &str) {
    let mut open = Vec::new();
    for part in xml.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap_or("");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{xml}"),
            None if tag.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}
