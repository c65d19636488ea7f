//! Branches: `if`, conditional `return`, `match`.

use tree_sitter::Node;

use super::super::source::{Code, is_extra};
use super::super::{BlockId, EdgeLabel, GraphError, Role, StatementKind};
use super::{Builder, Ends, header_end};

impl Builder<'_, '_> {
    /// `if`, with `elif` as an `if` in its false side; the whole chain has one join.
    pub(super) fn if_statement(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        let first = self.branch(node);
        let dead = self.dead;
        let mut last = first;
        self.suite(node, false, depth)?;
        let mut ends = self.side(dead);
        let mut otherwise = None;
        for clause in node.children_by_field_name("alternative", &mut node.walk()) {
            self.leave(last, EdgeLabel::False);
            if clause.kind() == "elif_clause" {
                last = self.branch(clause);
            } else {
                otherwise = Some(clause);
            }
            self.suite(clause, false, depth)?;
            ends.extend(self.side(dead));
        }
        if otherwise.is_some() {
            self.join(ends, first, first);
        } else if ends.is_empty() {
            self.leave(last, EdgeLabel::False);
        } else {
            ends.push((last, EdgeLabel::False));
            self.join(ends, first, first);
        }
        Ok(())
    }

    /// The head of an `if` or `elif`; the flow goes on in its true side.
    fn branch(&mut self, node: Node) -> BlockId {
        let header = self.header(node);
        let condition = match node.child_by_field_name("condition") {
            Some(condition) => {
                // With what cannot be read before or after it, so that nothing is lost.
                let start = node
                    .children(&mut node.walk())
                    .find(|child| child.is_error())
                    .map_or(condition.start_byte(), |e| e.start_byte().min(condition.start_byte()));
                let range = start..header_end(node).max(condition.end_byte());
                Code { text: self.source().cut(range).text, lines: header.lines }
            }
            None => header,
        };
        let head = self.head(Role::Branch { condition });
        self.leave(head, EdgeLabel::True);
        head
    }

    /// `return`; `return a if c else b` is a branch with a `return` on each side.
    pub(super) fn return_statement(&mut self, node: Node) {
        if !self.in_function() {
            self.tell(node.start_byte(), "`return` outside a function".to_owned());
            self.push(StatementKind::Plain, self.code(node));
            return;
        }
        let mut value = node.named_children(&mut node.walk()).find(|child| !is_extra(*child));
        let mut first = None;
        while let Some([yes, condition, no]) = value.and_then(|value| self.conditional(value)) {
            let mut condition = self.code(condition);
            if first.is_none() {
                condition.lines.push(node.start_position().row + 1);
                condition.lines.sort_unstable();
                condition.lines.dedup();
            }
            let head = self.head(Role::Branch { condition });
            first.get_or_insert(head);
            self.leave(head, EdgeLabel::True);
            let code = self.code(yes);
            self.return_code(Code { text: format!("return {}", code.text), ..code });
            self.leave(head, EdgeLabel::False);
            value = Some(no);
        }
        let code = match (first, value) {
            (Some(_), Some(rest)) => {
                let code = self.code(rest);
                Code { text: format!("return {}", code.text), ..code }
            }
            _ => self.code(node),
        };
        self.return_code(code);
        if let Some(head) = first {
            self.end(head);
        }
    }

    fn return_code(&mut self, code: Code) {
        let block = self.push(StatementKind::Return, code);
        self.jump(block, EdgeLabel::Return);
        self.end(block);
    }

    /// The parts of a conditional expression (value, condition, other value), when each would
    /// stand on a line of its own.
    fn conditional<'t>(&self, mut value: Node<'t>) -> Option<[Node<'t>; 3]> {
        while value.kind() == "parenthesized_expression" && !value.has_error() {
            value = value.named_children(&mut value.walk()).find(|child| !is_extra(*child))?;
        }
        if value.kind() != "conditional_expression" || value.has_error() {
            return None;
        }
        let parts: Vec<Node> =
            value.named_children(&mut value.walk()).filter(|child| !is_extra(*child)).collect();
        let parts: [Node; 3] = parts.try_into().ok()?;
        let whole_lines = |node: &Node| {
            let bracketed = matches!(
                node.kind(),
                "parenthesized_expression"
                    | "list"
                    | "tuple"
                    | "dictionary"
                    | "set"
                    | "list_comprehension"
                    | "dictionary_comprehension"
                    | "set_comprehension"
                    | "generator_expression"
                    | "conditional_expression"
            );
            bracketed || node.start_position().row == node.end_position().row
        };
        parts.iter().all(whole_lines).then_some(parts)
    }

    /// `match`: one edge for each case, and one for none where no case takes everything.
    pub(super) fn match_statement(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        let head = self.head(Role::Match { header: self.header(node) });
        let dead = self.dead;
        let mut ends: Ends = Vec::new();
        let mut exhausted = false;
        let mut index = 0;
        let blocks = node.children_by_field_name("body", &mut node.walk()).collect::<Vec<_>>();
        for child in blocks
            .iter()
            .flat_map(|block| block.named_children(&mut block.walk()).collect::<Vec<_>>())
        {
            if child.kind() == "case_clause" {
                let header = self.header(child);
                exhausted |= takes_everything(&header.text);
                let case = self.new_block(Role::Case { of: head, header, index });
                index += 1;
                self.edge(head, case, EdgeLabel::Case);
                self.enter(case);
                self.suite(child, false, depth + 1)?;
                ends.extend(self.side(dead));
            } else if !is_extra(child) {
                self.leave(head, EdgeLabel::Case);
                self.statement(child, depth + 1)?;
                ends.extend(self.side(dead));
            }
        }
        if index == 0 {
            let header = self.header(node);
            let what = format!("no `case` follows `{}`", header.text);
            self.tell(node.start_byte(), what);
        }
        let none = (!exhausted).then_some((head, EdgeLabel::NoCase));
        if let (true, Some((head, label))) = (ends.is_empty(), none) {
            self.leave(head, label);
        } else {
            ends.extend(none);
            self.join(ends, head, head);
        }
        Ok(())
    }
}

/// Whether a case header is a bare name or `_` without a guard.
fn takes_everything(header: &str) -> bool {
    let pattern = header.strip_prefix("case").unwrap_or(header).trim();
    let name = pattern.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !pattern.starts_with(|c: char| c.is_ascii_digit());
    name && !pattern.is_empty() && !matches!(pattern, "True" | "False" | "None")
}
