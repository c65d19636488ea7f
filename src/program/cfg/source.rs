//! The source of a program: one walk over the syntax tree finds comments, strings and errors, and
//! pieces of the text are cut out dedented and without comments.

use std::ops::Range;

use serde::Serialize;
use tree_sitter::{Node, Parser, Tree};

use super::{GraphError, MAX_INDENT_WIDTHS};

/// A place that Python would not take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SyntaxError {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong there, with the text in question.
    pub text: String,
}

/// A piece of the source: dedented, without comments and blank lines, otherwise as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Code {
    pub text: String,
    /// Source lines it was cut from, from 1, rising.
    pub lines: Vec<usize>,
}

/// A parsed source.
pub(super) struct Source {
    text: String,
    tree: Tree,
    line_starts: Vec<usize>,
    comments: Vec<Range<usize>>,
    /// Strings that go over a line's end, outermost ones only.
    long_strings: Vec<Range<usize>>,
    errors: Vec<SyntaxError>,
}

impl Source {
    pub(super) fn parse(source: &str) -> Result<Self, GraphError> {
        if u32::try_from(source.len()).is_err() {
            return Err(GraphError::TooLong { bytes: source.len() });
        }
        let mut text = with_plain_line_ends(source);
        let nulls: Vec<usize> = text.match_indices('\0').map(|(at, _)| at).collect();
        if !nulls.is_empty() {
            // The parser would stop at them; another control character is as wrong and as long.
            text = text.replace('\0', "\x01");
        }
        if let Some(line) = line_with_too_many_widths(&text) {
            return Err(GraphError::Indentation { line });
        }
        let mut parser = Parser::new();
        parser
            .set_language(&tree_sitter_python::LANGUAGE.into())
            .map_err(|error| GraphError::Parser { why: error.to_string() })?;
        let tree = parser
            .parse(&text, None)
            .ok_or_else(|| GraphError::Parser { why: "it was interrupted".to_owned() })?;
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut parsed = Self {
            text,
            tree,
            line_starts,
            comments: Vec::new(),
            long_strings: Vec::new(),
            errors: Vec::new(),
        };
        for at in nulls {
            parsed.tell(at, "a null character".to_owned());
        }
        parsed.survey();
        Ok(parsed)
    }

    /// The text, its tree, and whether it has no errors.
    pub(super) fn into_parts(self) -> (String, Tree, bool) {
        (self.text, self.tree, self.errors.is_empty())
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn errors(&self) -> &[SyntaxError] {
        &self.errors
    }

    /// The text of a node, as it stands.
    pub(super) fn text(&self, node: Node) -> &str {
        &self.text[node.byte_range()]
    }

    /// The error `what` at a byte of the source.
    pub(super) fn error_at(&self, byte: usize, what: String) -> SyntaxError {
        let row = self.row(byte);
        SyntaxError {
            line: row + 1,
            column: self.text[self.line_starts[row]..byte].chars().count() + 1,
            text: what,
        }
    }

    /// White space before the first character of the line of `byte`; Python counts what follows
    /// a form feed in it.
    pub(super) fn indentation(&self, byte: usize) -> &str {
        let line = &self.text[self.line_starts[self.row(byte)]..];
        let end = line.find(|c| !matches!(c, ' ' | '\t' | '\x0c')).unwrap_or(line.len());
        &line[..end]
    }

    /// Whether only white space stands before `byte` on its line.
    pub(super) fn begins_line(&self, byte: usize) -> bool {
        self.line_starts[self.row(byte)] + self.indentation(byte).len() == byte
    }

    /// Cuts a piece out: comments and blank lines go, the indentation of its first line is taken
    /// from the others, and lines that begin inside a string stay as they are.
    pub(super) fn cut(&self, range: Range<usize>) -> Code {
        let mut code = Code::default();
        if range.is_empty() {
            return code;
        }
        let indentation = self.indentation(range.start);
        for row in self.row(range.start)..=self.row(range.end - 1) {
            let start = self.line_starts[row].max(range.start);
            let end = match self.line_starts.get(row + 1) {
                Some(next) => (next - 1).min(range.end),
                None => range.end,
            };
            let mut line = self.without_comments(start..end);
            if !self.in_string(end) {
                line.truncate(line.trim_end().len());
            }
            let quoted = start > range.start && self.in_string(start);
            if !quoted {
                if line.trim().is_empty() {
                    continue;
                }
                let shared = indentation.bytes().zip(line.bytes()).take_while(|(a, b)| a == b);
                let shared = shared.count();
                line.drain(..shared);
            }
            if !code.lines.is_empty() {
                code.text.push('\n');
            }
            code.text.push_str(&line);
            code.lines.push(row + 1);
        }
        code
    }

    fn row(&self, byte: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= byte).saturating_sub(1)
    }

    /// Whether `byte` lies inside a string that goes over a line's end.
    fn in_string(&self, byte: usize) -> bool {
        let after = self.long_strings.partition_point(|string| string.start < byte);
        after > 0 && byte < self.long_strings[after - 1].end
    }

    fn without_comments(&self, range: Range<usize>) -> String {
        let mut line = String::new();
        let mut at = range.start;
        let first = self.comments.partition_point(|comment| comment.end <= range.start);
        for comment in &self.comments[first..] {
            if comment.start >= range.end {
                break;
            }
            line.push_str(&self.text[at..comment.start.max(at)]);
            at = comment.end.min(range.end);
        }
        line.push_str(&self.text[at..range.end]);
        line
    }

    /// Walks over the whole tree once, without recursion.
    fn survey(&mut self) {
        let tree = self.tree.clone();
        let mut cursor = tree.walk();
        let mut told_until = 0;
        loop {
            self.inspect(cursor.node(), &mut told_until);
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    self.errors.sort();
                    return;
                }
            }
        }
    }

    /// Notes what one node has to say. Errors before `told_until` have been told.
    fn inspect(&mut self, node: Node, told_until: &mut usize) {
        let start = node.start_byte();
        match node.kind() {
            "comment" if !self.in_string(start) => self.comments.push(node.byte_range()),
            "string"
                if node.start_position().row < node.end_position().row
                    && !self.in_string(start + 1) =>
            {
                self.long_strings.push(node.byte_range());
            }
            "string_start" if self.text(node).ends_with('`') && start >= *told_until => {
                self.tell(start, "a backtick is no quote".to_owned());
            }
            "print_statement" | "exec_statement" if self.is_python_2(node) => {
                let what = format!("a statement of Python 2: {}", shortened(self.text(node)));
                self.tell(start, what);
            }
            "<>" => self.tell(start, "`<>` is written `!=`".to_owned()),
            _ => {}
        }
        if node.is_missing() && start >= *told_until {
            self.tell(start, missing(node));
        } else if node.is_error() && start >= *told_until {
            for run in unreadable_runs(node) {
                *told_until = (*told_until).max(run.end);
                let what = format!("cannot be read: {}", shortened(&self.text[run.clone()]));
                self.tell(run.start, what);
            }
        }
    }

    /// `print >> f, x` is an expression in Python 3 too; the other forms are not.
    fn is_python_2(&self, node: Node) -> bool {
        node.kind() == "exec_statement" || node.named_child(0).is_none_or(|c| c.kind() != "chevron")
    }

    fn tell(&mut self, byte: usize, what: String) {
        let error = self.error_at(byte, what);
        self.errors.push(error);
    }
}

/// Whether a node is a whole statement.
pub(super) fn is_statement(node: Node) -> bool {
    let kind = node.kind();
    node.is_named() && (kind.ends_with("_statement") || kind.ends_with("_definition"))
}

/// Whether a node is no part of the program's meaning.
pub(super) fn is_extra(node: Node) -> bool {
    matches!(node.kind(), "comment" | "line_continuation")
}

/// The stretches of an error's children that are not whole statements.
pub(super) fn unreadable_runs(error: Node) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    if error.child_count() == 0 {
        runs.push(error.byte_range());
    }
    let mut open = false;
    for child in error.children(&mut error.walk()) {
        if is_statement(child) {
            open = false;
        } else if !is_extra(child) && !child.byte_range().is_empty() {
            match runs.last_mut().filter(|_| open) {
                Some(run) => run.end = child.end_byte(),
                None => runs.push(child.byte_range()),
            }
            open = true;
        }
    }
    runs
}

/// The source as Python reads it: without byte-order mark, every line end a line feed.
fn with_plain_line_ends(source: &str) -> String {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// The line at which there are more widths of indentation than can be open at once.
fn line_with_too_many_widths(text: &str) -> Option<usize> {
    let mut widths = std::collections::BTreeSet::new();
    for (row, line) in text.split('\n').enumerate() {
        let mut width = 0_usize;
        for c in line.chars() {
            match c {
                ' ' => width += 1,
                '\t' => width += 8,
                '\x0c' => width = 0,
                _ => break,
            }
        }
        widths.insert(width);
        if widths.len() > MAX_INDENT_WIDTHS {
            return Some(row + 1);
        }
    }
    None
}

/// What the grammar misses, in words.
fn missing(node: Node) -> String {
    match node.kind() {
        "_newline" => "the end of the line is missing".to_owned(),
        "_indent" | "_dedent" | "block" => "an indented block is missing".to_owned(),
        kind if node.is_named() => format!("missing: {}", kind.replace('_', " ")),
        kind => format!("missing: {}", quoted(kind)),
    }
}

/// The first line of a text in backticks, at most 60 characters of it.
pub(super) fn shortened(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or("").trim_end();
    match line.char_indices().nth(60) {
        Some((end, _)) => quoted(&format!("{}…", &line[..end])),
        None => quoted(line),
    }
}

/// Code between backticks: one more than stand together inside it, so that none ends it early.
pub(in crate::program) fn quoted(code: &str) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let padding = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
    format!("{fence}{padding}{code}{padding}{fence}")
}
