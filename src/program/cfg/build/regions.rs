//! Regions: loops, `try`, `with`.

use tree_sitter::Node;

use super::super::source::Code;
use super::super::{BlockId, EdgeLabel, GraphError, Role};
use super::{Builder, Ends, Frame};

impl Builder<'_, '_> {
    pub(super) fn loop_statement(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        let head = self.head(Role::Loop { header: self.header(node) });
        let dead = self.dead;
        self.frames.push(Frame::Loop { head, breaks: Vec::new(), left: false });
        self.leave(head, EdgeLabel::LoopBody);
        self.suite(node, false, depth)?;
        for (from, label) in self.side(dead) {
            let label = if label == EdgeLabel::Next { EdgeLabel::Repeat } else { label };
            self.edge(from, head, label);
        }
        let (breaks, left) = match self.frames.pop() {
            Some(Frame::Loop { breaks, left, .. }) => (breaks, left),
            _ => (Vec::new(), false),
        };
        let end = self.new_block(Role::LoopEnd { of: head });
        self.block(head).after = Some(end);
        let exits = !self.never_ends(node);
        if exits {
            self.edge(head, end, EdgeLabel::LoopExit);
        }
        let Some(clause) = node.child_by_field_name("alternative") else {
            self.connect(&breaks, end);
            self.enter(end);
            if !exits && !left {
                self.end(end);
            }
            return Ok(());
        };
        let header = self.header(clause);
        let other = self.new_block(Role::LoopElse { of: head, header });
        self.edge(end, other, EdgeLabel::LoopElse);
        self.enter(other);
        self.suite(clause, false, depth)?;
        let mut ends = self.side(dead);
        let broken = !breaks.is_empty() && (left || !ends.is_empty());
        if broken {
            ends.extend(breaks);
        }
        self.join(ends, head, end);
        if broken {
            // `break` leads here even where no code follows, so that its edge stays in the loop.
            self.here();
        }
        Ok(())
    }

    /// Whether a loop has no exit but `break`: `while True`, `while 1`.
    fn never_ends(&self, node: Node) -> bool {
        node.kind() == "while_statement"
            && node.child_by_field_name("condition").is_some_and(|condition| {
                let text = self.source().text(condition);
                text == "True" || text.parse::<u64>().is_ok_and(|number| number != 0)
            })
    }

    pub(super) fn with_statement(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        let with = self.head(Role::With { header: self.header(node) });
        let dead = self.dead;
        self.leave(with, EdgeLabel::Body);
        self.suite(node, false, depth)?;
        let mut ends = self.side(dead);
        if ends.is_empty() {
            // Code that follows can still run: `with suppress(…)` swallows what its body raises.
            ends.push((with, EdgeLabel::Suppressed));
        }
        self.join(ends, with, with);
        Ok(())
    }

    pub(super) fn try_statement(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        let clauses = Clauses::of(node);
        let head = self.head(Role::Try { header: self.header(node) });
        let dead = self.dead;
        let mut slot = head;
        let finally = clauses.finally.map(|clause| {
            let block = self.new_block(Role::Finally { header: self.header(clause) });
            self.frames.push(Frame::Finally { block, pending: Vec::new() });
            block
        });
        let dispatch = (!clauses.handlers.is_empty()).then(|| {
            let dispatch = self.new_block(Role::Handlers { of: head });
            self.frames.push(Frame::Handlers { dispatch });
            self.block(head).after = Some(dispatch);
            slot = dispatch;
            dispatch
        });
        self.leave(head, EdgeLabel::Body);
        let body = self.next_id();
        self.suite(node, false, depth)?;
        let body = body..self.next_id();
        self.may_raise(body);
        let mut ends = self.side(dead);
        let guarded = self.next_id();
        let mut caught = Ends::new();
        if let Some(dispatch) = dispatch {
            self.frames.pop();
            caught = self.handlers(dispatch, &clauses.handlers, depth)?;
        }
        if let Some(clause) = clauses.otherwise {
            let block = self.new_block(Role::TryElse { header: self.header(clause) });
            self.connect(&ends, block);
            self.block(slot).after = Some(block);
            slot = block;
            let reached = !ends.is_empty();
            self.leave(block, EdgeLabel::Body);
            self.suite(clause, false, depth)?;
            let through = self.side(dead);
            ends = if reached { through } else { Vec::new() };
        }
        ends.extend(caught);
        if let (Some(block), Some(clause)) = (finally, clauses.finally) {
            let guarded = guarded..self.next_id();
            self.may_raise(guarded);
            self.block(slot).after = Some(block);
            slot = block;
            ends = self.finally(block, clause, ends, depth)?;
        }
        if dispatch.is_none() && finally.is_none() {
            self.tell(node.start_byte(), "`try` has neither `except` nor `finally`".to_owned());
        }
        self.join(ends, head, slot);
        Ok(())
    }

    /// The handlers of a `try`; their loose ends.
    fn handlers(
        &mut self,
        dispatch: BlockId,
        handlers: &[Node],
        depth: usize,
    ) -> Result<Ends, GraphError> {
        let dead = self.dead;
        let mut ends = Ends::new();
        let mut bare = false;
        for clause in handlers {
            let header = self.header(*clause);
            let caught = caught(&header);
            bare |= caught.is_empty();
            let block = self.new_block(Role::Handler { header, caught });
            self.edge(dispatch, block, EdgeLabel::Handler);
            self.enter(block);
            self.suite(*clause, false, depth)?;
            ends.extend(self.side(dead));
        }
        if !bare {
            self.jump(dispatch, EdgeLabel::Exception);
        }
        Ok(ends)
    }

    /// `finally`, reached by the ends of the sections before it and by jumps, which it finishes.
    fn finally(
        &mut self,
        block: BlockId,
        clause: Node,
        arriving: Ends,
        depth: usize,
    ) -> Result<Ends, GraphError> {
        let dead = self.dead;
        self.connect(&arriving, block);
        let pending = match self.frames.pop() {
            Some(Frame::Finally { pending, .. }) => pending,
            _ => Vec::new(),
        };
        self.leave(block, EdgeLabel::Body);
        self.suite(clause, false, depth)?;
        if self.dead == dead && !pending.is_empty() && self.flow_is_live() {
            let last = self.here();
            for label in pending {
                self.jump(last, label);
            }
        }
        let ends = self.side(dead);
        Ok(if arriving.is_empty() { Vec::new() } else { ends })
    }

    fn flow_is_live(&self) -> bool {
        self.flow.open.is_some() || !self.flow.ends.is_empty()
    }
}

/// The clauses of a `try`.
struct Clauses<'t> {
    handlers: Vec<Node<'t>>,
    otherwise: Option<Node<'t>>,
    finally: Option<Node<'t>>,
}

impl<'t> Clauses<'t> {
    fn of(node: Node<'t>) -> Self {
        let mut clauses = Self { handlers: Vec::new(), otherwise: None, finally: None };
        for child in node.named_children(&mut node.walk()) {
            match child.kind() {
                "except_clause" => clauses.handlers.push(child),
                "else_clause" => clauses.otherwise = Some(child),
                "finally_clause" => clauses.finally = Some(child),
                _ => {}
            }
        }
        clauses
    }
}

/// What a handler catches, on one line: the header without `except`.
fn caught(header: &Code) -> String {
    let text = header.text.strip_prefix("except").unwrap_or(&header.text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
