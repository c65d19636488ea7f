//! The control-flow graph of a Python program: one graph for the module, each function and each
//! class, read by tree-sitter. Uses no other room.
//!
//! A graph is made of basic blocks and labelled edges. Beside its edges a block may name the block
//! of the code that is written *after* its construct (`Block::after`: the join of an `if`, the end
//! of a loop, the next section of a `try`, code that no path reaches). Following edges depth-first,
//! and `after` when they are exhausted, meets every block once and in the order of the source.

mod build;
mod source;

use serde::Serialize;

pub(super) use source::quoted;
pub use source::{Code, SyntaxError};

/// How deeply blocks may be nested; Python itself takes 100 levels of indentation.
pub const MAX_DEPTH: usize = 100;

/// So many different widths of indentation are taken; a program within `MAX_DEPTH` needs fewer.
/// The grammar's scanner keeps its open levels, which all differ in width, in 1,024 bytes, so the
/// bound is checked before it sees the text.
const MAX_INDENT_WIDTHS: usize = 256;

/// Reads a program into graphs.
///
/// Text that is no Python is kept as unreadable statements, with its places in
/// `Program::syntax_errors`. Time is linear in the length of the source.
///
/// # Errors
/// `GraphError` when there is no graph to be had; `units::read` then falls back on plain lines.
pub fn parse(source: &str) -> Result<Program, GraphError> {
    build::program(source::Source::parse(source)?)
}

/// The syntax tree of a program, with the text that its positions are of, and whether Python would take
/// it as far as the grammar can tell. The same bounds as `parse`.
pub(crate) fn syntax(source: &str) -> Result<(String, tree_sitter::Tree, bool), GraphError> {
    Ok(source::Source::parse(source)?.into_parts())
}

/// Why a source has no control-flow graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Blocks are nested more deeply than Python allows.
    #[error(
        "line {line}: blocks are nested deeper than {MAX_DEPTH} levels, which Python refuses too; flatten the program"
    )]
    TooDeep { line: usize },
    /// More widths of indentation than the grammar's scanner can keep open at once.
    #[error(
        "line {line}: more than {MAX_INDENT_WIDTHS} different widths of indentation; indent by a fixed width"
    )]
    Indentation { line: usize },
    /// The source is longer than positions can tell.
    #[error("the source has {bytes} bytes; at most {} can be read", u32::MAX)]
    TooLong { bytes: usize },
    /// The parser gave nothing back.
    #[error("the Python parser gave no tree: {why}")]
    Parser { why: String },
}

/// A program: the graphs of its scopes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The module first, then functions and classes in the order of the source.
    pub graphs: Vec<Graph>,
    /// Places that Python would not take, in the order of the source.
    pub syntax_errors: Vec<SyntaxError>,
}

impl Program {
    /// The module's own graph.
    pub const MODULE: GraphId = GraphId(0);

    /// The graph of a scope of this program.
    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[id.0]
    }
}

/// The number of a graph in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct GraphId(pub usize);

/// The number of a block in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct BlockId(pub usize);

/// The graph of one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Graph {
    pub scope: Scope,
    /// In the order in which they were met; `entry` is the first, `exit` the second.
    pub blocks: Vec<Block>,
    pub entry: BlockId,
    pub exit: BlockId,
}

impl Graph {
    /// A block of this graph.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0]
    }

    /// Every edge, with the block that it leaves.
    pub fn edges(&self) -> impl Iterator<Item = (BlockId, Edge)> + '_ {
        let numbered = self.blocks.iter().enumerate();
        numbered.flat_map(|(id, block)| block.edges.iter().map(move |edge| (BlockId(id), *edge)))
    }
}

/// What a graph is the graph of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scope {
    pub kind: ScopeKind,
    /// Empty for the module.
    pub name: String,
    /// Decorators and signature, up to the colon; empty for the module.
    pub header: Code,
    /// The scope in which it is defined.
    pub parent: Option<GraphId>,
}

/// The kinds of scope that have a graph of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    Module,
    Function,
    Class,
}

/// A basic block: statements that run one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    pub role: Role,
    pub statements: Vec<Statement>,
    /// In the order in which they are told: true before false, cases and handlers as written.
    pub edges: Vec<Edge>,
    /// Where the code goes on that is written after this block's construct.
    pub after: Option<BlockId>,
}

/// What a block is in its graph. Heads (`Branch`, `Loop`, `Try`, `Handlers`, `TryElse`, `Finally`,
/// `With`, `Match`) have no statements; the text of the header is what they evaluate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Role {
    Entry,
    Exit,
    Plain,
    /// `if`, `elif` or the condition of `return a if c else b`; `condition` without its keyword.
    Branch {
        condition: Code,
    },
    /// The guard of a `for` or `while`.
    Loop {
        header: Code,
    },
    /// Where a loop ends, by its guard or (without `else`) by `break`.
    LoopEnd {
        of: BlockId,
    },
    /// The `else` of a loop.
    LoopElse {
        of: BlockId,
        header: Code,
    },
    Try {
        header: Code,
    },
    /// Where an exception of a `try` meets its handlers.
    Handlers {
        of: BlockId,
    },
    /// `except`; `caught` is what is written after the keyword, on one line.
    Handler {
        header: Code,
        caught: String,
    },
    /// The `else` of a `try`.
    TryElse {
        header: Code,
    },
    Finally {
        header: Code,
    },
    With {
        header: Code,
    },
    Match {
        header: Code,
    },
    Case {
        of: BlockId,
        header: Code,
        /// From 0.
        index: usize,
    },
    /// Where the ways through an `if`, `match`, `try`, `with` or loop with `else` meet again.
    Join {
        of: BlockId,
    },
    /// Code that no path reaches.
    Unreachable,
}

/// A simple statement, or the definition of an inner scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    pub kind: StatementKind,
    /// Empty for a definition: its scope has the header.
    pub code: Code,
}

/// What a statement does to the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatementKind {
    Plain,
    Return,
    Raise,
    Assert,
    Break,
    Continue,
    /// `def` or `class`: the graph of its body.
    Define(GraphId),
    /// Text that the parser could not make sense of.
    Unreadable,
}

/// A way from one block to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    pub to: BlockId,
    pub label: EdgeLabel,
}

/// Why control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeLabel {
    Next,
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    LoopBody,
    /// The guard of a loop ends it.
    LoopExit,
    /// Into the `else` of a loop.
    LoopElse,
    /// Back to the guard of a loop.
    Repeat,
    Break,
    Continue,
    Return,
    /// Something is raised.
    Exception,
    /// Into a handler.
    Handler,
    /// A `with` swallowed an exception.
    Suppressed,
    /// Into the body of a `try`, its `else` or `finally`, or a `with`.
    Body,
    Case,
    /// No case of a `match` matches.
    NoCase,
}
