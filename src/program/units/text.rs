//! The words of a unit: marks between `#`, statements in backticks.

use super::super::cfg::{Code, GraphId, quoted};

/// A unit before it is written out.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub items: Vec<Item>,
}

/// A mark or a statement.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub mark: Mark,
    /// A statement's code; the whole line of a mark.
    pub text: String,
    pub lines: Vec<usize>,
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Statement,
    EnterFunction(GraphId),
    EnterClass,
    /// The end of a function or class.
    Exit,
    Branch,
    LoopBegin,
    LoopEnd,
    LoopElse,
    Try,
    Except,
    Else,
    Finally,
    With,
    Match,
    Unreachable,
    /// The end of a `try`, or of a branch, `with` or `match` after which code goes on.
    End,
}

impl Item {
    pub(super) fn new(mark: Mark, code: Code) -> Self {
        Self { mark, text: code.text, lines: code.lines }
    }

    fn rendered_lines(&self) -> usize {
        self.text.lines().count().max(1)
    }
}

impl Draft {
    /// How many lines the unit has, not counting brackets around statements.
    pub(super) fn rendered_lines(&self) -> usize {
        self.items.iter().map(Item::rendered_lines).sum()
    }

    /// Divides the unit into at most `parts` of equally many lines; a statement of several lines
    /// goes where it begins.
    pub(super) fn split(&self, parts: usize) -> Vec<Draft> {
        let size = self.rendered_lines().div_ceil(parts).max(1);
        let mut drafts = vec![Draft::default(); parts];
        let mut line = 0;
        for item in &self.items {
            drafts[line / size].items.push(item.clone());
            line += item.rendered_lines();
        }
        drafts.retain(|draft| !draft.items.is_empty());
        drafts
    }

    /// What the unit is: its first mark, or `block` where it only goes on.
    pub(super) fn label(&self) -> &'static str {
        let told = |mark: &Mark| !matches!(mark, Mark::End | Mark::Exit);
        match self.items.iter().map(|item| item.mark).find(told) {
            Some(Mark::EnterFunction(_)) => "entry",
            Some(Mark::EnterClass) => "class",
            Some(Mark::Branch) => "branch",
            Some(Mark::LoopBegin) => "loop begin",
            Some(Mark::LoopEnd) => "loop end",
            Some(Mark::LoopElse) => "loop else",
            Some(Mark::Try) => "try",
            Some(Mark::Except) => "except",
            Some(Mark::Else) => "else",
            Some(Mark::Finally) => "finally",
            Some(Mark::With) => "with",
            Some(Mark::Match) => "match",
            Some(Mark::Unreachable) => "unreachable",
            Some(Mark::Statement | Mark::End | Mark::Exit) | None => "block",
        }
    }

    /// Source lines, rising, each once.
    pub(super) fn lines(&self) -> Vec<usize> {
        let mut lines: Vec<usize> =
            self.items.iter().flat_map(|i| i.lines.iter().copied()).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The unit written out: marks on lines of their own, statements after `RUN`.
    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        let is_statement = |item: &Item| item.mark == Mark::Statement;
        for group in self.items.chunk_by(|a, b| is_statement(a) && is_statement(b)) {
            match group {
                [mark] if !is_statement(mark) => lines.push(mark.text.clone()),
                [statement] => lines.push(format!("RUN {}", quoted(&statement.text))),
                statements => {
                    lines.push("RUN [".to_owned());
                    lines.extend(statements.iter().map(|statement| quoted(&statement.text)));
                    lines.push("]".to_owned());
                }
            }
        }
        lines.join("\n")
    }
}
