//! Generated programs, judged by two other readers: an interpreter of the program beside one of
//! its graph, and a reader of marks that says under which conditions each statement runs.

use proptest::prelude::*;
use unsay::program::cfg::{self, BlockId, EdgeLabel, Graph, Role, StatementKind};

use super::plain;

/// A statement of a generated program. Simple statements and conditions have names of their own.
#[derive(Clone, Debug)]
enum Piece {
    Simple(String),
    Jump(&'static str),
    If {
        sides: Vec<(String, Vec<Piece>)>,
        otherwise: Option<Vec<Piece>>,
    },
    Loop {
        condition: String,
        each: bool,
        body: Vec<Piece>,
        otherwise: Option<Vec<Piece>>,
    },
    Try {
        body: Vec<Piece>,
        handlers: Vec<Vec<Piece>>,
        otherwise: Option<Vec<Piece>>,
        finally: Vec<Piece>,
    },
    With {
        name: String,
        body: Vec<Piece>,
    },
    Function {
        name: String,
        body: Vec<Piece>,
    },
}

fn block(depth: u32) -> BoxedStrategy<Vec<Piece>> {
    prop::collection::vec(piece(depth), 1..4).boxed()
}

fn piece(depth: u32) -> BoxedStrategy<Piece> {
    let simple = Just(Piece::Simple(String::new()));
    let jump =
        prop::sample::select(vec!["return", "raise E", "break", "continue"]).prop_map(Piece::Jump);
    if depth == 0 {
        return prop_oneof![4 => simple, 1 => jump].boxed();
    }
    let sides = prop::collection::vec(block(depth - 1).prop_map(|b| (String::new(), b)), 1..4);
    let other = || prop::option::of(block(depth - 1));
    let branch = (sides, other()).prop_map(|(sides, otherwise)| Piece::If { sides, otherwise });
    let again = (any::<bool>(), block(depth - 1), other()).prop_map(|(each, body, otherwise)| {
        Piece::Loop { condition: String::new(), each, body, otherwise }
    });
    let handlers = prop::collection::vec(block(depth - 1), 0..3);
    let attempt = (block(depth - 1), handlers, other(), 0..3_usize).prop_map(
        |(body, handlers, otherwise, finally)| {
            // Without a handler there is no `else`, and there must be a `finally`.
            let otherwise = otherwise.filter(|_| !handlers.is_empty());
            let finally = if handlers.is_empty() { finally.max(1) } else { finally };
            let finally = vec![Piece::Simple(String::new()); finally];
            Piece::Try { body, handlers, otherwise, finally }
        },
    );
    let with = block(depth - 1).prop_map(|body| Piece::With { name: String::new(), body });
    let function = block(depth - 1).prop_map(|body| Piece::Function { name: String::new(), body });
    prop_oneof![
        4 => simple, 2 => jump, 3 => branch, 2 => again, 2 => attempt, 1 => with, 1 => function
    ]
    .boxed()
}

/// Gives every name its number and replaces jumps that have no loop or function around them.
fn name(pieces: &mut [Piece], count: &mut usize, in_loop: bool, in_function: bool) {
    for piece in pieces {
        match piece {
            Piece::Simple(text) => *text = next_name(count, "s"),
            Piece::Jump("break" | "continue") if !in_loop => {
                *piece = Piece::Simple(next_name(count, "s"));
            }
            Piece::Jump("return") if !in_function => *piece = Piece::Simple(next_name(count, "s")),
            Piece::Jump(_) => {}
            Piece::If { sides, otherwise } => {
                for (condition, body) in sides {
                    *condition = next_name(count, "c");
                    name(body, count, in_loop, in_function);
                }
                otherwise.iter_mut().for_each(|body| name(body, count, in_loop, in_function));
            }
            Piece::Loop { condition, body, otherwise, .. } => {
                *condition = next_name(count, "c");
                name(body, count, true, in_function);
                otherwise.iter_mut().for_each(|body| name(body, count, in_loop, in_function));
            }
            Piece::Try { body, handlers, otherwise, finally } => {
                let blocks = std::iter::once(body).chain(handlers).chain(otherwise);
                blocks.for_each(|body| name(body, count, in_loop, in_function));
                name(finally, count, in_loop, in_function);
            }
            Piece::With { name: with, body } => {
                *with = next_name(count, "w");
                name(body, count, in_loop, in_function);
            }
            Piece::Function { name: function, body } => {
                *function = next_name(count, "f");
                name(body, count, false, true);
            }
        }
    }
}

fn next_name(count: &mut usize, prefix: &str) -> String {
    *count += 1;
    format!("{prefix}{count}_")
}

fn loop_header(condition: &str, each: bool) -> String {
    if each { format!("for x in {condition}") } else { format!("while {condition}") }
}

/// The program as Python.
fn source(pieces: &[Piece], indentation: usize) -> String {
    let mut out = String::new();
    let mut line = |text: &str| out.push_str(&format!("{}{text}\n", " ".repeat(indentation)));
    let inner = |body: &[Piece]| source(body, indentation + 2).trim_end().to_owned();
    for piece in pieces {
        match piece {
            Piece::Simple(text) => line(text),
            Piece::Jump(jump) => line(jump),
            Piece::If { sides, otherwise } => {
                for (at, (condition, body)) in sides.iter().enumerate() {
                    line(&format!("{} {condition}:", if at == 0 { "if" } else { "elif" }));
                    raw(&mut line, &inner(body), indentation);
                }
                for body in otherwise.iter() {
                    line("else:");
                    raw(&mut line, &inner(body), indentation);
                }
            }
            Piece::Loop { condition, each, body, otherwise } => {
                line(&format!("{}:", loop_header(condition, *each)));
                raw(&mut line, &inner(body), indentation);
                for body in otherwise.iter() {
                    line("else:");
                    raw(&mut line, &inner(body), indentation);
                }
            }
            Piece::Try { body, handlers, otherwise, finally } => {
                line("try:");
                raw(&mut line, &inner(body), indentation);
                for body in handlers {
                    line("except E:");
                    raw(&mut line, &inner(body), indentation);
                }
                for body in otherwise.iter() {
                    line("else:");
                    raw(&mut line, &inner(body), indentation);
                }
                if !finally.is_empty() {
                    line("finally:");
                    raw(&mut line, &inner(finally), indentation);
                }
            }
            Piece::With { name, body } => {
                line(&format!("with {name}:"));
                raw(&mut line, &inner(body), indentation);
            }
            Piece::Function { name, body } => {
                line(&format!("def {name}():"));
                raw(&mut line, &inner(body), indentation);
            }
        }
    }
    out
}

/// Passes on lines that have their indentation already.
fn raw(line: &mut impl FnMut(&str), text: &str, indentation: usize) {
    text.lines().for_each(|text| line(&text[indentation..]));
}

/// Answers to conditions, in the order in which they are asked; then always no.
struct Tape<'a> {
    answers: std::slice::Iter<'a, bool>,
    trace: Vec<String>,
}

impl Tape<'_> {
    fn ask(&mut self, condition: &str) -> bool {
        let answer = self.answers.next().copied().unwrap_or(false);
        self.trace.push(format!("{condition}={answer}"));
        answer
    }
}

/// How a block ends: `None` normally, else by a jump.
type End = Option<&'static str>;

/// Runs the pieces; what is raised goes to the first handler.
fn run(pieces: &[Piece], tape: &mut Tape) -> End {
    for piece in pieces {
        let end = match piece {
            Piece::Simple(text) => {
                tape.trace.push(text.clone());
                None
            }
            Piece::Jump(jump) => {
                tape.trace.push((*jump).to_owned());
                Some(*jump)
            }
            Piece::If { sides, otherwise } => {
                let taken = sides.iter().find(|(condition, _)| tape.ask(condition));
                match (taken, otherwise) {
                    (Some((_, body)), _) => run(body, tape),
                    (None, Some(body)) => run(body, tape),
                    (None, None) => None,
                }
            }
            Piece::Loop { condition, each, body, otherwise } => loop {
                if !tape.ask(&loop_header(condition, *each)) {
                    break otherwise.as_ref().and_then(|body| run(body, tape));
                }
                match run(body, tape) {
                    Some("break") => break None,
                    None | Some("continue") => {}
                    end => break end,
                }
            },
            Piece::Try { body, handlers, otherwise, finally } => {
                let end = match (run(body, tape), handlers.first(), otherwise) {
                    (Some("raise E"), Some(handler), _) => run(handler, tape),
                    (None, _, Some(body)) => run(body, tape),
                    (end, _, _) => end,
                };
                run(finally, tape);
                end
            }
            Piece::With { body, .. } => run(body, tape),
            Piece::Function { .. } => None,
        };
        if end.is_some() {
            return end;
        }
    }
    None
}

/// Walks over a graph; what is raised goes to the first handler.
fn walk(graph: &Graph, tape: &mut Tape) {
    let mut at = graph.entry;
    let jump_labels =
        [EdgeLabel::Return, EdgeLabel::Exception, EdgeLabel::Break, EdgeLabel::Continue];
    // How the `finally` was reached whose body (one block here) is walked over.
    let mut reached = EdgeLabel::Next;
    while at != graph.exit {
        let block = graph.block(at);
        let mut jump = None;
        for statement in &block.statements {
            if let StatementKind::Define(_) = statement.kind {
                continue;
            }
            tape.trace.push(statement.code.text.clone());
            jump = match statement.kind {
                StatementKind::Return => Some(EdgeLabel::Return),
                StatementKind::Raise => Some(EdgeLabel::Exception),
                StatementKind::Break => Some(EdgeLabel::Break),
                StatementKind::Continue => Some(EdgeLabel::Continue),
                _ => None,
            };
        }
        let normal = [EdgeLabel::Next, EdgeLabel::Repeat, EdgeLabel::Body, EdgeLabel::Handler];
        let has = |label: EdgeLabel| block.edges.iter().find(|edge| edge.label == label);
        let edge = match &block.role {
            Role::Branch { condition } => match tape.ask(&condition.text) {
                true => has(EdgeLabel::True),
                false => has(EdgeLabel::False),
            },
            Role::Loop { header } => match tape.ask(&header.text) {
                true => has(EdgeLabel::LoopBody),
                false => has(EdgeLabel::LoopExit),
            },
            Role::LoopEnd { .. } if has(EdgeLabel::LoopElse).is_some() => has(EdgeLabel::LoopElse),
            Role::Finally { .. } => has(EdgeLabel::Body),
            _ => match jump {
                Some(label) => has(label),
                None if !normal.contains(&reached) => has(reached),
                None => block.edges.iter().find(|edge| normal.contains(&edge.label)),
            },
        };
        let edge = edge.unwrap_or_else(|| panic!("no {reached:?} out of {at:?} {block:?}"));
        reached = match (&graph.block(edge.to).role, &block.role) {
            // A loose end of any kind may lead to a `finally`; only jumps are finished by it.
            (Role::Finally { .. }, _) if jump_labels.contains(&edge.label) => edge.label,
            (_, Role::Finally { .. }) => reached,
            _ => EdgeLabel::Next,
        };
        at = edge.to;
    }
}

/// Whether control never comes out at the end of the pieces.
fn leaves(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| match piece {
        Piece::Simple(_) | Piece::Function { .. } => false,
        Piece::Jump(_) => true,
        Piece::Loop { body, otherwise, .. } => {
            otherwise.as_ref().is_some_and(|body| leaves(body)) && !breaks(body)
        }
        Piece::If { sides, otherwise } => {
            otherwise.as_ref().is_some_and(|body| leaves(body))
                && sides.iter().all(|(_, body)| leaves(body))
        }
        Piece::Try { body, handlers, otherwise, .. } => {
            (leaves(body) || otherwise.as_ref().is_some_and(|body| leaves(body)))
                && handlers.iter().all(|body| leaves(body))
        }
        // It may swallow what its body raises.
        Piece::With { .. } => false,
    })
}

/// Whether the pieces, as the body of a loop, can leave it by `break`.
fn breaks(pieces: &[Piece]) -> bool {
    for (at, piece) in pieces.iter().enumerate() {
        let found = match piece {
            Piece::Jump(jump) => *jump == "break",
            Piece::Simple(_) | Piece::Function { .. } => false,
            Piece::If { sides, otherwise } => {
                sides.iter().map(|(_, body)| body).chain(otherwise).any(|body| breaks(body))
            }
            Piece::Loop { otherwise, .. } => otherwise.as_ref().is_some_and(|body| breaks(body)),
            Piece::Try { body, handlers, otherwise, .. } => {
                let otherwise = otherwise.iter().filter(|_| !leaves(body));
                std::iter::once(body).chain(handlers).chain(otherwise).any(|body| breaks(body))
            }
            Piece::With { body, .. } => breaks(body),
        };
        if found || leaves(&pieces[at..=at]) {
            return found;
        }
    }
    false
}

/// The conditions and regions under which each statement that can be reached stands.
fn contexts(pieces: &[Piece], around: &[String], out: &mut Vec<(String, Vec<String>)>) {
    let mut around = around.to_vec();
    let with = |around: &[String], more: String| [around, &[more]].concat();
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Simple(text) => out.push((text.clone(), around.clone())),
            Piece::Jump(_) => {}
            Piece::If { sides, otherwise } => {
                let mut under = around.clone();
                for (condition, body) in sides {
                    contexts(body, &with(&under, format!("{condition}+")), out);
                    under.push(format!("{condition}-"));
                }
                match otherwise {
                    Some(body) => contexts(body, &under, out),
                    None if sides.iter().all(|(_, body)| leaves(body)) => around = under,
                    None => {}
                }
            }
            Piece::Loop { condition, each, body, otherwise } => {
                let header = loop_header(condition, *each);
                contexts(body, &with(&around, header.clone()), out);
                for body in otherwise.iter() {
                    contexts(body, &with(&around, format!("{header} else")), out);
                }
            }
            Piece::Try { body, handlers, otherwise, finally } => {
                contexts(body, &with(&around, "try".to_owned()), out);
                for body in handlers {
                    contexts(body, &with(&around, "except".to_owned()), out);
                }
                for body in otherwise.iter() {
                    contexts(body, &with(&around, "else".to_owned()), out);
                }
                contexts(finally, &with(&around, "finally".to_owned()), out);
            }
            Piece::With { name, body } => contexts(body, &with(&around, name.clone()), out),
            Piece::Function { name, body } => contexts(body, &with(&around, name.clone()), out),
        }
        if leaves(&pieces[at..=at]) {
            return;
        }
    }
}

/// Reads the marks of units as a judge would: which conditions and regions hold at each statement.
fn read_marks(text: &str) -> Vec<(String, Vec<String>)> {
    let mut stack: Vec<String> = Vec::new();
    let mut told = Vec::new();
    for line in text.lines() {
        let name = line.split('`').nth(1).unwrap_or("").to_owned();
        let mut close = |is: &dyn Fn(&str) -> bool| {
            let at = stack.iter().rposition(|open| is(open));
            let at = at.unwrap_or_else(|| panic!("nothing open for {line}\n{text}"));
            stack.truncate(at);
        };
        let section = |open: &str| matches!(open, "try" | "except" | "else" | "finally");
        match line.split('#').nth(1).unwrap_or("") {
            "BRANCH" if line.ends_with("does not hold") => {
                close(&|open| open == format!("{name}+"));
                stack.push(format!("{name}-"));
            }
            "BRANCH" => stack.push(format!("{name}+")),
            "BRANCH END" => close(&|open| open.trim_end_matches(['+', '-']) == name),
            "LOOP BEGIN" => stack.push(name),
            "LOOP END" => close(&|open| open == name),
            "LOOP ELSE" => stack.push(format!("{name} else")),
            "LOOP ELSE END" => close(&|open| open == format!("{name} else")),
            "TRY" => stack.push("try".to_owned()),
            "TRY END" => close(&section),
            mark @ ("EXCEPT E" | "ELSE" | "FINALLY") => {
                close(&section);
                stack.push(mark.trim_end_matches(" E").to_lowercase());
            }
            "WITH" => stack.push(name.trim_start_matches("with ").to_owned()),
            "WITH END" => close(&|open| open == name.trim_start_matches("with ")),
            "ENTER FUNCTION" => {
                stack.push(name.trim_start_matches("def ").trim_end_matches("()").to_owned());
            }
            "EXIT FUNCTION" => close(&|open| open == name),
            _ if name.starts_with('s') => told.push((name, stack.clone())),
            _ => {}
        }
    }
    told
}

fn programs() -> impl Strategy<Value = Vec<Piece>> {
    block(4).prop_map(|mut pieces| {
        name(&mut pieces, &mut 0, false, false);
        pieces
    })
}

/// The pieces of every function, and the module's, in the order of the source.
fn scopes<'p>(pieces: &'p [Piece], out: &mut Vec<&'p [Piece]>) {
    for piece in pieces {
        match piece {
            Piece::Simple(_) | Piece::Jump(_) => {}
            Piece::If { sides, otherwise } => {
                let blocks = sides.iter().map(|(_, body)| body).chain(otherwise);
                blocks.for_each(|body| scopes(body, out));
            }
            Piece::Loop { body, otherwise, .. } => {
                std::iter::once(body).chain(otherwise).for_each(|body| scopes(body, out));
            }
            Piece::Try { body, handlers, otherwise, finally } => {
                let blocks = std::iter::once(body).chain(handlers).chain(otherwise);
                blocks.chain([finally]).for_each(|body| scopes(body, out));
            }
            Piece::With { body, .. } => scopes(body, out),
            Piece::Function { body, .. } => {
                out.push(body);
                scopes(body, out);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the conditions say, the graph does what the program does.
    #[test]
    fn a_graph_runs_like_its_program(
        pieces in programs(),
        answers in prop::collection::vec(any::<bool>(), 0..40),
    ) {
        let program = cfg::parse(&source(&pieces, 0)).unwrap();
        prop_assert_eq!(&program.syntax_errors, &[]);
        let mut bodies = vec![pieces.as_slice()];
        scopes(&pieces, &mut bodies);
        prop_assert_eq!(program.graphs.len(), bodies.len());
        for (graph, body) in program.graphs.iter().zip(bodies) {
            let mut expected = Tape { answers: answers.iter(), trace: Vec::new() };
            run(body, &mut expected);
            let mut walked = Tape { answers: answers.iter(), trace: Vec::new() };
            walk(graph, &mut walked);
            prop_assert_eq!(walked.trace, expected.trace, "{}", source(&pieces, 0));
        }
    }

    /// Every statement is told once, in the order of the source, and a reader of the marks knows
    /// under which conditions it stands.
    #[test]
    fn marks_tell_where_every_statement_stands(pieces in programs()) {
        let source = source(&pieces, 0);
        let reading = plain(&source);
        prop_assert_eq!(&reading, &plain(&source));
        prop_assert_eq!(&reading.syntax_errors, &[]);
        let text: String = reading.units.iter().map(|unit| format!("{}\n", unit.text)).collect();
        let told = read_marks(&text);
        let written: Vec<&str> =
            source.lines().map(str::trim).filter(|line| line.starts_with('s')).collect();
        prop_assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), written);
        let mut expected = Vec::new();
        contexts(&pieces, &[], &mut expected);
        for (name, context) in expected {
            let (_, found) = told.iter().find(|(told, _)| *told == name).unwrap();
            prop_assert_eq!(found, &context, "{}\n{}\n{}", name, &source, &text);
        }
    }

    /// Every block but the exit is told, and only entries and unreachable code have no way in.
    #[test]
    fn graphs_are_whole(pieces in programs()) {
        let program = cfg::parse(&source(&pieces, 0)).unwrap();
        for graph in &program.graphs {
            for (id, block) in graph.blocks.iter().enumerate() {
                let id = BlockId(id);
                let reached = graph.edges().any(|(_, edge)| edge.to == id);
                let without = matches!(
                    block.role,
                    Role::Entry | Role::Exit | Role::Unreachable | Role::TryElse { .. }
                        | Role::Finally { .. } | Role::Handlers { .. }
                );
                prop_assert!(reached || without, "{id:?} {block:?}\n{}", source(&pieces, 0));
                prop_assert!(block.edges.iter().all(|edge| edge.to.0 < graph.blocks.len()));
            }
        }
    }

    /// Programs that were damaged anywhere are read without a panic, the same way every time, and
    /// every name that is left in them is told.
    #[test]
    fn damaged_programs_are_read(
        pieces in programs(),
        cut in any::<prop::sample::Index>(),
        length in 0..12_usize,
        put in "[ \\t\\n:()'\"`#\\\\a-z0-9=]{0,4}",
    ) {
        let mut source = source(&pieces, 0);
        let start = cut.index(source.len());
        let end = (start + length).min(source.len());
        source.replace_range(start..end, &put);
        let reading = plain(&source);
        prop_assert_eq!(&reading, &plain(&source));
        let lines = source.lines().count();
        prop_assert!(reading.units.iter().flat_map(|u| &u.lines).all(|l| (1..=lines).contains(l)));
        if !put.contains(['\'', '"', '#']) {
            let text: String = reading.units.iter().map(|unit| unit.text.as_str()).collect();
            for name in source.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if name.starts_with('s') && name.ends_with('_') {
                    prop_assert!(text.contains(name), "{name}\n{source}\n{text}");
                }
            }
        }
    }

    /// Any text at all is read without a panic.
    #[test]
    fn any_text_is_read(source in "\\PC{0,80}|[\\PC\\n\\t ]{0,120}|[ \\n:()\\[\\]'\"`#{}\\\\a-z=\\x00\\x0c\\r]{0,120}") {
        plain(&source);
    }
}
