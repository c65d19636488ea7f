//! From what a model said to the program that is tested.
//!
//! Definitions, imports and what they need stay; examples of use do not, since the tests are the data
//! set's: prints, assertions, calls of the asked function, `if __name__ == "__main__"`. What is left out is
//! left out as `pass`, so that lines keep their numbers.

use std::collections::BTreeSet;
use std::ops::Range;

use tree_sitter::{Node, Tree};

use crate::answer::read_code;
use crate::program::cfg;

/// Parses of one answer at most, where a program is looked for between lines of prose.
const PARSES: usize = 600;

/// The program in `answer` that defines `name`; none where it defines it nowhere. `prompt`: Python that
/// ends within the head of that function, which an answer may go on with; empty where there is none.
pub fn program(answer: &str, prompt: &str, name: &str) -> Option<String> {
    let mut left = PARSES;
    let texts = spoken(answer);
    let as_it_stands = |text: &String| Parsed::of(text).filter(|parsed| parsed.is_whole(name));
    let found = texts
        .iter()
        .find_map(as_it_stands)
        .or_else(|| texts.iter().find_map(|text| completed(text, prompt, name)))
        .or_else(|| texts.iter().find_map(|text| block(text, name, &mut left)))
        .or_else(|| {
            // A body that was cut off, or that is followed by something else.
            let body = texts.iter().find(|text| is_indented(text) && !prompt.is_empty())?;
            block(bodies(body, prompt).first()?, name, &mut left)
        })?;
    Some(found.tidied(name))
}

/// The texts that may be the program: the answer, and the code that it holds.
fn spoken(answer: &str) -> Vec<String> {
    let mut texts = vec![answer.trim_matches('\n').to_owned()];
    let fenced: Vec<&str> = answer.split("```").skip(1).step_by(2).collect();
    let inner = fenced.iter().rev().map(|block| match block.split_once('\n') {
        Some((word, rest)) if !word.trim().contains(' ') => rest.to_owned(),
        _ => (*block).to_owned(),
    });
    texts.extend(inner);
    texts.extend(read_code(answer).map(|code| code.source));
    texts
}

/// The program that begins with `prompt` and goes on with a body.
fn completed(text: &str, prompt: &str, name: &str) -> Option<Parsed> {
    if prompt.is_empty() || text.trim().is_empty() || !is_body(text) {
        return None;
    }
    let whole = bodies(text, prompt).into_iter().filter_map(|source| Parsed::of(&source));
    whole.into_iter().find(|parsed| parsed.is_whole(name))
}

/// Whether a text reads as what stands in a function: it is indented, or returns at its outermost level.
fn is_body(text: &str) -> bool {
    is_indented(text)
        || Parsed::of(text).is_some_and(|parsed| {
            parsed.statements().iter().any(|node| node.kind() == "return_statement")
                || first_line_only_is_out(text)
        })
}

fn is_indented(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    first.starts_with([' ', '\t'])
}

/// Whether the first line lost its indentation and the others did not.
fn first_line_only_is_out(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let out = |line: &str| !line.starts_with([' ', '\t']);
    let opens = |line: &str| line.trim_end().ends_with([':', '(', '[', '{', ',', '\\']);
    match (lines.next(), lines.next()) {
        (Some(first), Some(second)) => out(first) && !opens(first) && !out(second),
        _ => false,
    }
}

/// The prompt with the text as its body: as it stands, or indented.
fn bodies(text: &str, prompt: &str) -> Vec<String> {
    let prompt = format!("{}\n", prompt.trim_end());
    let indented = |line: &str| match line.trim().is_empty() {
        true => "\n".to_owned(),
        false => format!("    {line}\n"),
    };
    let all: String = text.lines().map(indented).collect();
    let first = if first_line_only_is_out(text) { format!("    {text}") } else { text.to_owned() };
    vec![prompt.clone() + &first + "\n", prompt + &all]
}

/// The longest run of lines that reads as a program with the function in it.
fn block(text: &str, name: &str, left: &mut usize) -> Option<Parsed> {
    let lines: Vec<&str> = text.lines().collect();
    let starts =
        |line: &&str| line.starts_with(|c: char| c.is_alphabetic() || c == '@' || c == '_');
    let begins: Vec<usize> = (0..lines.len()).filter(|at| starts(&lines[*at])).collect();
    let mut best: Option<(usize, Parsed)> = None;
    for begin in begins {
        let mut end = lines.len();
        while end > begin && best.as_ref().is_none_or(|(length, _)| end - begin > *length) {
            let Some(fewer) = left.checked_sub(1) else { return best.map(|(_, parsed)| parsed) };
            *left = fewer;
            match Parsed::of(&lines[begin..end].join("\n")) {
                Some(parsed) if parsed.is_whole(name) => best = Some((end - begin, parsed)),
                _ => end -= 1,
            }
        }
    }
    best.map(|(_, parsed)| parsed)
}

/// A text read as Python.
struct Parsed {
    text: String,
    tree: Tree,
    valid: bool,
}

impl Parsed {
    fn of(source: &str) -> Option<Parsed> {
        let (text, tree, valid) = cfg::syntax(source).ok()?;
        Some(Parsed { text, tree, valid })
    }

    /// Whether it is Python and defines `name`, with something to do.
    fn is_whole(&self, name: &str) -> bool {
        self.valid && self.has_body(name) && !self.has_empty_block()
    }

    /// Whether a block holds nothing, which the grammar allows and Python does not.
    fn has_empty_block(&self) -> bool {
        let mut open = vec![self.tree.root_node()];
        while let Some(node) = open.pop() {
            let inner: Vec<Node> = node.named_children(&mut node.walk()).collect();
            let missing = matches!(node.kind(), "function_definition" | "class_definition")
                && node.child_by_field_name("body").is_none();
            if missing || (node.kind() == "block" && inner.iter().all(|n| n.kind() == "comment")) {
                return true;
            }
            open.extend(inner);
        }
        false
    }

    fn statements(&self) -> Vec<Node<'_>> {
        let root = self.tree.root_node();
        root.named_children(&mut root.walk()).filter(|node| node.kind() != "comment").collect()
    }

    fn said(&self, node: Node) -> &str {
        &self.text[node.byte_range()]
    }

    /// The last statement at the outermost level, or in a branch there, that defines `name`.
    fn definition(&self, name: &str) -> Option<Node<'_>> {
        self.statements().into_iter().rfind(|node| self.bound(*node).contains(name))
    }

    /// Whether the function has more than a text for people as its body.
    fn has_body(&self, name: &str) -> bool {
        let Some(mut node) = self.definition(name) else { return false };
        if let Some(inner) = node.child_by_field_name("definition") {
            node = inner;
        }
        let Some(body) = node.child_by_field_name("body") else { return true };
        let mut walk = body.walk();
        let statements = body.named_children(&mut walk).filter(|node| node.kind() != "comment");
        let is_text = |node: &Node| {
            node.kind() == "expression_statement"
                && node.named_child(0).is_some_and(|inner| inner.kind() == "string")
        };
        statements.filter(|node| !is_text(node)).count() > 0
    }

    /// Names that a statement gives a value to at the outermost level.
    fn bound(&self, node: Node) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            match node.kind() {
                "function_definition" | "class_definition" => {
                    if let Some(name) = node.child_by_field_name("name") {
                        names.insert(self.said(name).to_owned());
                    }
                    continue;
                }
                "assignment" | "augmented_assignment" | "for_statement" => {
                    names.extend(
                        node.child_by_field_name("left")
                            .map(|n| self.names_in(n))
                            .unwrap_or_default(),
                    );
                }
                "lambda" => continue,
                "named_expression" | "as_pattern_target" => names.extend(self.names_in(node)),
                _ => {}
            }
            open.extend(node.named_children(&mut node.walk()));
        }
        names
    }

    /// All names in a node.
    fn names_in(&self, node: Node) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if node.kind() == "identifier" {
                names.insert(self.said(node).to_owned());
            }
            open.extend(node.named_children(&mut node.walk()));
        }
        names
    }

    /// The names that definitions take from around them.
    fn needs(&self, node: Node) -> BTreeSet<String> {
        let (mut names, mut own) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![node];
        let mut shares = false;
        while let Some(inner) = open.pop() {
            match inner.kind() {
                "identifier" => drop(names.insert(self.said(inner).to_owned())),
                "global_statement" | "nonlocal_statement" => shares = true,
                // Its own definitions aside, which indentation keeps from going deep.
                "function_definition" if inner != node => {
                    names.extend(self.needs(inner));
                    continue;
                }
                "parameters" | "lambda_parameters" => {
                    for parameter in inner.named_children(&mut inner.walk()) {
                        let name = parameter.child_by_field_name("name").unwrap_or(parameter);
                        own.extend(self.names_in(name));
                        for part in ["value", "type"] {
                            open.extend(parameter.child_by_field_name(part));
                        }
                    }
                    continue;
                }
                _ => {}
            }
            open.extend(inner.named_children(&mut inner.walk()));
        }
        if node.kind() == "function_definition" && !shares {
            let body = node.child_by_field_name("body");
            own.extend(body.map(|body| self.bound(body)).unwrap_or_default());
            names.retain(|name| !own.contains(name));
        }
        names
    }

    /// The program without examples of use.
    fn tidied(&self, entry: &str) -> String {
        let statements = self.statements();
        let used: BTreeSet<String> = statements
            .iter()
            .filter(|node| is_definition(**node))
            .flat_map(|node| self.needs(*node))
            .collect();
        let mut dropped: Vec<Range<usize>> = statements
            .iter()
            .filter(|node| !self.stays(**node, entry, &used))
            .map(Node::byte_range)
            .collect();
        dropped.sort_by_key(|range| range.start);
        let mut program = String::new();
        let mut at = 0;
        for range in dropped {
            let lines = self.text[range.clone()].matches('\n').count();
            program.push_str(&self.text[at..range.start]);
            program.push_str("pass");
            program.push_str(&"\n".repeat(lines));
            at = range.end;
        }
        program.push_str(&self.text[at..]);
        program
    }

    /// Whether a statement is part of the program, and no example of its use.
    fn stays(&self, node: Node, entry: &str, used: &BTreeSet<String>) -> bool {
        if is_definition(node)
            || node.kind().starts_with("import")
            || node.kind() == "future_import_statement"
        {
            return true;
        }
        let names = self.names_in(node);
        let needed = self.bound(node).iter().any(|name| used.contains(name) || name == entry);
        match node.kind() {
            "assert_statement" | "print_statement" | "exec_statement" | "return_statement"
            | "raise_statement" => false,
            "if_statement" if self.is_main(node) => false,
            "expression_statement" => match node.named_child(0) {
                Some(inner) if inner.kind().ends_with("assignment") => {
                    needed || !is_use(&names, entry)
                }
                Some(inner) => {
                    // What a bare expression gives is lost; only what it does could matter.
                    let does = matches!(inner.kind(), "call" | "await" | "named_expression");
                    needed || (does && !is_use(&names, entry))
                }
                None => true,
            },
            _ => needed || self.holds_definition(node) || !is_use(&names, entry),
        }
    }

    /// `if __name__ == "__main__":`
    fn is_main(&self, node: Node) -> bool {
        let condition = node.child_by_field_name("condition");
        condition.is_some_and(|condition| self.names_in(condition).contains("__name__"))
    }

    fn holds_definition(&self, node: Node) -> bool {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if is_definition(node) || node.kind().starts_with("import") {
                return true;
            }
            open.extend(node.named_children(&mut node.walk()));
        }
        false
    }
}

fn is_definition(node: Node) -> bool {
    matches!(node.kind(), "function_definition" | "class_definition" | "decorated_definition")
}

/// Whether a statement with these names shows how a program is used, or asks for input.
fn is_use(names: &BTreeSet<String>, entry: &str) -> bool {
    const SHOWS: [&str; 8] =
        ["print", "pprint", "input", "exit", "quit", "doctest", "unittest", "timeit"];
    names.contains(entry) || SHOWS.iter().any(|name| names.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str = "import math\n\n\ndef area(r):\n    \"\"\"Of a circle.\"\"\"\n";
    const BODY: &str = "    return math.pi * r ** 2\n";

    fn lines(answer: &str) -> Option<Vec<String>> {
        let program = program(answer, PROMPT, "area")?;
        let lines = program.lines().filter(|line| !line.trim().is_empty() && *line != "pass");
        Some(lines.map(str::to_owned).collect())
    }

    #[test]
    fn what_a_program_needs_stays_and_examples_go() {
        let answer = "from functools import lru_cache\nimport sys\nsys.setrecursionlimit(5000)\n\
            PI = 3.14\nTABLE = []\nfor n in range(9):\n    TABLE.append(n)\n\
            class Circle:\n    pass\ndef helper(r):\n    yield TABLE[0] + PI\n\
            @lru_cache\ndef area(r):\n    return next(helper(r))\nunused = area(4)\n\
            print(area(2))\nassert area(1) > 3\nfor r in [1, 2]:\n    print(r, area(r))\n'text'\n\
            if __name__ == '__main__':\n    import doctest\n    area(3)\n";
        let kept = lines(answer).unwrap();
        let expected: Vec<&str> = answer.lines().take(14).collect();
        assert_eq!(kept, expected);
        // Lines keep their numbers.
        let at = |text: &str| text.lines().position(|line| line.starts_with("def area"));
        assert_eq!(at(&program(answer, PROMPT, "area").unwrap()), at(answer));
    }

    #[test]
    fn the_last_definition_and_what_becomes_of_it_stay() {
        for answer in [
            "def area(r):\n    pass\ndef area(r):\n    return 3",
            "def slow(r):\n    return 3\narea = slow",
            "def area(r):\n    return 3\ncache = {}\narea = cached(area)",
            "try:\n    import numpy\nexcept ImportError:\n    def area(r):\n        return 3",
            "area = lambda r: 3",
            "memo = {0: 1}\nmemo[1] = 2\ndef area(r):\n    return memo[r]",
            "total = 0\nif total == 0:\n    total += 1\ndef area(r):\n    return total",
        ] {
            let expected: Vec<&str> = answer.lines().filter(|line| *line != "cache = {}").collect();
            let kept = lines(answer).unwrap();
            let kept: Vec<&String> = kept.iter().filter(|line| *line != "cache = {}").collect();
            assert_eq!(kept, expected, "{answer}");
        }
    }

    #[test]
    fn prose_around_a_program_goes() {
        let code = "def area(r):\n    return 3 * r";
        for answer in [
            format!("Here it is:\n\n{code}\n\nThis works since a circle is round."),
            format!("Sure!\n```python\n{code}\n```\nFor example:\n```python\nprint(area(2))\n```"),
            format!("<code>\n{code}\n</code>"),
            format!("{code}\n\ndef other(x):\n    return (x +"),
            format!("{code}\n\nExplanation\n"),
        ] {
            assert_eq!(lines(&answer).unwrap().join("\n"), code, "{answer}");
        }
        // A fence within the code is part of it.
        let fenced =
            "def area(r):\n    \"\"\"\n    ```\n    area(2)\n    ```\n    \"\"\"\n    return 3 * r";
        assert_eq!(lines(fenced).unwrap().join("\n"), fenced);
    }

    #[test]
    fn a_body_goes_on_with_the_prompt() {
        let whole: Vec<String> = (PROMPT.to_owned() + BODY)
            .lines()
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect();
        for answer in [
            BODY,
            BODY.trim(),
            "    return math.pi * r ** 2\n\n\nprint(area(1))",
            "```python\n    return math.pi * r ** 2\n```",
        ] {
            assert_eq!(lines(answer).unwrap(), whole, "{answer}");
        }
        for answer in
            ["x = 3\nif r:\n    x = 4\nreturn x", "x = 3\n    if r:\n        x = 4\n    return x"]
        {
            let end = ["    x = 3", "    if r:", "        x = 4", "    return x"];
            assert_eq!(lines(answer).unwrap()[3..], end, "{answer}");
        }
        // A body that was cut off is left out to the last line that can stand.
        let cut = "    x = 3\n    if r:\n        return 4\n    return (x +";
        assert_eq!(lines(cut).unwrap()[3..], ["    x = 3", "    if r:", "        return 4"]);
    }

    #[test]
    fn where_the_function_is_not_there_is_no_program() {
        for answer in
            ["", "I do not know.", "def other(x):\n    return x", "    x +", "```\n```", "area"]
        {
            assert_eq!(program(answer, PROMPT, "area"), None, "{answer}");
        }
        assert_eq!(program("return 3", "", "area"), None);
    }
}
