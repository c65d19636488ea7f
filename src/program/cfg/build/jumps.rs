//! Jumps: `return`, `break`, `continue` and exceptions, through every `finally` on their way.

use std::ops::Range;

use tree_sitter::Node;

use super::super::{BlockId, EdgeLabel, Role, ScopeKind, StatementKind};
use super::{Builder, Frame};

impl Builder<'_, '_> {
    /// Whether the scope is a function.
    pub(super) fn in_function(&mut self) -> bool {
        self.graph().scope.kind == ScopeKind::Function
    }

    /// `break` and `continue`; outside a loop they are errors and jump nowhere.
    pub(super) fn loop_jump(&mut self, node: Node, label: EdgeLabel) {
        let kind = match label {
            EdgeLabel::Break => StatementKind::Break,
            _ => StatementKind::Continue,
        };
        let code = self.code(node);
        if !self.frames.iter().any(|frame| matches!(frame, Frame::Loop { .. })) {
            self.tell(node.start_byte(), format!("`{}` outside a loop", code.text));
            self.push(StatementKind::Plain, code);
            return;
        }
        let block = self.push(kind, code);
        self.jump(block, label);
        self.end(block);
    }

    /// Adds the edge of a jump: to its target, or to the nearest `finally` on the way, which
    /// then has the jump to finish.
    pub(super) fn jump(&mut self, from: BlockId, label: EdgeLabel) {
        let dead = self.dead;
        for frame in self.frames.iter_mut().rev() {
            let target = match (frame, label) {
                (Frame::Finally { block, pending }, _) => {
                    if !pending.contains(&label) {
                        pending.push(label);
                    }
                    *block
                }
                (Frame::Handlers { dispatch }, EdgeLabel::Exception) => *dispatch,
                (Frame::Loop { head, .. }, EdgeLabel::Continue) => *head,
                (Frame::Loop { breaks, left, .. }, EdgeLabel::Break) => {
                    breaks.push((from, EdgeLabel::Break));
                    *left |= !dead;
                    return;
                }
                _ => continue,
            };
            return self.edge(from, target, label);
        }
        let exit = self.exit();
        self.edge(from, exit, label);
    }

    /// Adds the exceptions that statements may raise: every block of `body` that evaluates
    /// something and has no such edge yet.
    pub(super) fn may_raise(&mut self, body: Range<usize>) {
        for id in body.map(BlockId) {
            let block = self.block(id);
            let head = matches!(
                block.role,
                Role::Branch { .. } | Role::Loop { .. } | Role::With { .. } | Role::Match { .. }
            );
            let raises = block.edges.iter().any(|edge| edge.label == EdgeLabel::Exception);
            if (head || !block.statements.is_empty()) && !raises {
                self.jump(id, EdgeLabel::Exception);
            }
        }
    }

    /// The number that the next block will have.
    pub(super) fn next_id(&mut self) -> usize {
        self.graph().blocks.len()
    }
}
