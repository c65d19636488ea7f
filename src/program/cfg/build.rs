//! From the syntax tree to graphs.
//!
//! The builder keeps the loose ends of the flow and makes a block only when a statement needs one,
//! so a join exists only where code follows it. Every construct restores what it changed.

use tree_sitter::Node;

use super::source::{
    Code, Source, SyntaxError, is_extra, is_statement, shortened, unreadable_runs,
};
use super::{
    Block, BlockId, Edge, EdgeLabel, Graph, GraphError, GraphId, MAX_DEPTH, Program, Role, Scope,
    ScopeKind, Statement, StatementKind,
};

mod branches;
mod jumps;
mod regions;

/// Builds every graph of a source.
pub(super) fn program(source: Source) -> Result<Program, GraphError> {
    let mut reading =
        Reading { source: &source, graphs: Vec::new(), errors: source.errors().to_vec() };
    let module = Scope {
        kind: ScopeKind::Module,
        name: String::new(),
        header: Code::default(),
        parent: None,
    };
    reading.scope(module, 0, |builder| {
        let root = source.tree().root_node();
        builder.indentation_of(root, Some(""));
        builder.statements_of(root, true, 0)
    })?;
    let Reading { graphs, mut errors, .. } = reading;
    errors.sort();
    errors.dedup();
    Ok(Program { graphs, syntax_errors: errors })
}

/// What all graphs of a program share while they are built.
struct Reading<'s> {
    source: &'s Source,
    graphs: Vec<Graph>,
    errors: Vec<SyntaxError>,
}

impl<'s> Reading<'s> {
    /// Builds the graph of a scope, whose body `fill` adds.
    fn scope(
        &mut self,
        scope: Scope,
        depth: usize,
        fill: impl FnOnce(&mut Builder<'_, 's>) -> Result<(), GraphError>,
    ) -> Result<GraphId, GraphError> {
        debug_assert!(depth <= MAX_DEPTH);
        let id = GraphId(self.graphs.len());
        let (entry, exit) = (BlockId(0), BlockId(1));
        let blocks = vec![Block::new(Role::Entry), Block::new(Role::Exit)];
        self.graphs.push(Graph { scope, blocks, entry, exit });
        let mut builder = Builder {
            id,
            reading: self,
            frames: Vec::new(),
            flow: Flow::from(vec![(entry, EdgeLabel::Next)]),
            dead: false,
        };
        fill(&mut builder)?;
        let ends = builder.take_ends();
        builder.connect(&ends, exit);
        Ok(id)
    }
}

impl Block {
    fn new(role: Role) -> Self {
        Self { role, statements: Vec::new(), edges: Vec::new(), after: None }
    }
}

/// Loose ends: blocks that control leaves, and why.
type Ends = Vec<(BlockId, EdgeLabel)>;

/// Where the flow of control stands.
struct Flow {
    ends: Ends,
    /// The block that takes further statements.
    open: Option<BlockId>,
    /// What the next block will be, if one is needed.
    next: Next,
}

impl From<Ends> for Flow {
    fn from(ends: Ends) -> Self {
        Self { ends, open: None, next: Next::Plain }
    }
}

/// What the next block of a flow will be.
#[derive(Clone, Copy)]
enum Next {
    Plain,
    /// The join of the construct `of`, told after `slot`.
    Join {
        of: BlockId,
        slot: BlockId,
    },
    /// Not reached; told after `slot`.
    Unreachable {
        slot: BlockId,
    },
}

/// What surrounds the flow, for jumps out of it.
enum Frame {
    Loop { head: BlockId, breaks: Ends, left: bool },
    Handlers { dispatch: BlockId },
    Finally { block: BlockId, pending: Vec<EdgeLabel> },
}

/// Builds one graph.
struct Builder<'r, 's> {
    id: GraphId,
    reading: &'r mut Reading<'s>,
    frames: Vec<Frame>,
    flow: Flow,
    /// No path reaches the flow.
    dead: bool,
}

/// Blocks, edges and the flow.
impl Builder<'_, '_> {
    fn graph(&mut self) -> &mut Graph {
        &mut self.reading.graphs[self.id.0]
    }

    fn block(&mut self, id: BlockId) -> &mut Block {
        &mut self.graph().blocks[id.0]
    }

    fn exit(&mut self) -> BlockId {
        self.graph().exit
    }

    fn new_block(&mut self, role: Role) -> BlockId {
        let blocks = &mut self.graph().blocks;
        blocks.push(Block::new(role));
        BlockId(blocks.len() - 1)
    }

    fn edge(&mut self, from: BlockId, to: BlockId, label: EdgeLabel) {
        let edge = Edge { to, label };
        let edges = &mut self.block(from).edges;
        if !edges.contains(&edge) {
            edges.push(edge);
        }
    }

    fn connect(&mut self, ends: &[(BlockId, EdgeLabel)], to: BlockId) {
        for (from, label) in ends {
            self.edge(*from, to, *label);
        }
    }

    /// Takes the loose ends; the flow has none then.
    fn take_ends(&mut self) -> Ends {
        let flow = std::mem::replace(&mut self.flow, Flow::from(Vec::new()));
        match flow.open {
            Some(block) => vec![(block, EdgeLabel::Next)],
            None => flow.ends,
        }
    }

    /// Lets the flow go on in a block that exists.
    fn enter(&mut self, block: BlockId) {
        self.flow = Flow { ends: Vec::new(), open: Some(block), next: Next::Plain };
    }

    /// Ends the flow; code that follows is unreachable and told after `slot`.
    fn end(&mut self, slot: BlockId) {
        let next = Next::Unreachable { slot };
        self.flow = Flow { ends: Vec::new(), open: None, next };
    }

    /// The block for the next statement.
    fn here(&mut self) -> BlockId {
        if let Some(block) = self.flow.open {
            return block;
        }
        let ends = std::mem::take(&mut self.flow.ends);
        let (role, slot) = match self.flow.next {
            Next::Plain => (Role::Plain, None),
            Next::Join { of, slot } => (Role::Join { of }, Some(slot)),
            Next::Unreachable { slot } => {
                self.dead = true;
                (Role::Unreachable, Some(slot))
            }
        };
        let block = self.new_block(role);
        self.connect(&ends, block);
        if let Some(slot) = slot {
            self.block(slot).after = Some(block);
        }
        self.enter(block);
        block
    }

    /// Ends the current block with the head of a construct. The flow has no ends then.
    fn head(&mut self, role: Role) -> BlockId {
        if !matches!(self.flow.next, Next::Plain) {
            self.here();
        }
        let ends = self.take_ends();
        let head = self.new_block(role);
        self.connect(&ends, head);
        head
    }

    /// Lets the flow start from one edge of a head.
    fn leave(&mut self, head: BlockId, label: EdgeLabel) {
        self.flow = Flow::from(vec![(head, label)]);
    }

    /// Ends a side of a construct: its loose ends if a path that was live when the construct
    /// began (`dead` then as given) comes through. The flow has none then.
    fn side(&mut self, dead: bool) -> Ends {
        let through = self.dead == dead;
        self.dead = dead;
        let ends = self.take_ends();
        if through { ends } else { Vec::new() }
    }

    /// Goes on after a construct whose sides end as given.
    fn join(&mut self, ends: Ends, of: BlockId, slot: BlockId) {
        if ends.is_empty() {
            self.end(slot);
        } else {
            self.flow = Flow { ends, open: None, next: Next::Join { of, slot } };
        }
    }
}

/// Statements.
impl<'s> Builder<'_, 's> {
    fn source(&self) -> &'s Source {
        self.reading.source
    }

    fn tell(&mut self, byte: usize, what: String) {
        let error = self.source().error_at(byte, what);
        self.reading.errors.push(error);
    }

    fn code(&self, node: Node) -> Code {
        self.source().cut(node.byte_range())
    }

    /// The statements of a block, of the module or of an error. With `documented`, a first
    /// statement that is a docstring is left out.
    fn statements_of(
        &mut self,
        node: Node,
        documented: bool,
        depth: usize,
    ) -> Result<(), GraphError> {
        if depth >= MAX_DEPTH {
            return Err(GraphError::TooDeep { line: node.start_position().row + 1 });
        }
        if node.is_error() {
            return self.error(node, depth);
        }
        let mut first = documented;
        for child in node.named_children(&mut node.walk()) {
            if is_extra(child) {
                continue;
            }
            if !(first && self.is_docstring(child)) {
                self.statement(child, depth)?;
            }
            first = false;
        }
        Ok(())
    }

    /// An error among statements: the statements that it holds, and the rest as it stands.
    fn error(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        let mut runs = unreadable_runs(node).into_iter().peekable();
        for child in node.children(&mut node.walk()).filter(|child| is_statement(*child)) {
            while let Some(run) = runs.next_if(|run| run.start < child.start_byte()) {
                self.unreadable(run);
            }
            self.statement(child, depth)?;
        }
        runs.for_each(|run| self.unreadable(run));
        Ok(())
    }

    fn unreadable(&mut self, range: std::ops::Range<usize>) {
        let code = self.source().cut(range);
        if !code.lines.is_empty() {
            self.push(StatementKind::Unreadable, code);
        }
    }

    fn is_docstring(&self, statement: Node) -> bool {
        let plain = |string: Node| {
            let prefix = string.child(0).map_or("", |start| self.source().text(start));
            !prefix.contains(['b', 'B', 'f', 'F', 't', 'T', '`'])
        };
        let Some(value) = statement.named_child(0) else { return false };
        let whole = statement.kind() == "expression_statement"
            && statement.byte_range() == value.byte_range();
        whole
            && match value.kind() {
                "string" => plain(value),
                "concatenated_string" => {
                    value.named_children(&mut value.walk()).filter(|n| !is_extra(*n)).all(plain)
                }
                _ => false,
            }
    }

    fn statement(&mut self, node: Node, depth: usize) -> Result<(), GraphError> {
        match node.kind() {
            "if_statement" => self.if_statement(node, depth)?,
            "for_statement" | "while_statement" => self.loop_statement(node, depth)?,
            "match_statement" => self.match_statement(node, depth)?,
            "try_statement" => self.try_statement(node, depth)?,
            "with_statement" => self.with_statement(node, depth)?,
            "function_definition" | "class_definition" => self.definition(node, node, depth)?,
            "decorated_definition" => match node.child_by_field_name("definition") {
                Some(definition) => self.definition(node, definition, depth)?,
                None => self.unreadable(node.byte_range()),
            },
            "return_statement" => self.return_statement(node),
            "break_statement" => self.loop_jump(node, EdgeLabel::Break),
            "continue_statement" => self.loop_jump(node, EdgeLabel::Continue),
            "raise_statement" => {
                let block = self.push(StatementKind::Raise, self.code(node));
                self.jump(block, EdgeLabel::Exception);
                self.end(block);
            }
            "assert_statement" => {
                let block = self.push(StatementKind::Assert, self.code(node));
                self.leave(block, EdgeLabel::Next);
                self.jump(block, EdgeLabel::Exception);
            }
            "ERROR" => self.statements_of(node, false, depth + 1)?,
            _ => {
                self.push(StatementKind::Plain, self.code(node));
            }
        }
        Ok(())
    }

    fn push(&mut self, kind: StatementKind, code: Code) -> BlockId {
        let block = self.here();
        self.block(block).statements.push(Statement { kind, code });
        block
    }

    /// A function or class: `whole` has its decorators.
    fn definition(&mut self, whole: Node, node: Node, depth: usize) -> Result<(), GraphError> {
        let kind = match node.kind() {
            "class_definition" => ScopeKind::Class,
            _ => ScopeKind::Function,
        };
        let name = node.child_by_field_name("name").map_or("", |name| self.source().text(name));
        let header = self.source().cut(whole.start_byte()..header_end(node));
        let scope = Scope { kind, name: name.to_owned(), header, parent: Some(self.id) };
        let inner = self.reading.scope(scope, depth, |builder| builder.suite(node, true, depth))?;
        self.push(StatementKind::Define(inner), Code::default());
        Ok(())
    }

    /// The body of a compound statement or clause: the block after its colon, and what errors
    /// around it hold.
    fn suite(&mut self, node: Node, documented: bool, depth: usize) -> Result<(), GraphError> {
        let colon = header_end(node);
        // These headers are not shown, so what cannot be read in them is shown with the body.
        let silent = matches!(node.kind(), "try_statement" | "else_clause" | "finally_clause");
        let mut empty = true;
        for child in node.children(&mut node.walk()) {
            if child.start_byte() < colon && !(silent && child.is_error()) {
                continue;
            }
            match child.kind() {
                "block" => {
                    empty &= child.named_children(&mut child.walk()).all(is_extra);
                    self.indentation_of(child, None);
                    self.statements_of(child, documented, depth + 1)?;
                }
                "ERROR" => {
                    empty = false;
                    self.statements_of(child, false, depth + 1)?;
                }
                _ => {}
            }
        }
        if empty {
            // A block all the same, so that the header before it is told.
            self.here();
            let header = shortened(&self.header(node).text);
            self.tell(node.start_byte(), format!("an indented block is missing after {header}"));
        }
        Ok(())
    }

    /// The header of a compound statement or clause, without its colon.
    fn header(&self, node: Node) -> Code {
        self.source().cut(node.start_byte()..header_end(node))
    }

    /// Tells where the statements of a block are not indented alike, or not as `expected`.
    fn indentation_of(&mut self, block: Node, expected: Option<&str>) {
        let source = self.source();
        let mut expected = expected;
        for child in block.named_children(&mut block.walk()) {
            let start = child.start_byte();
            if is_extra(child) || child.is_error() || !source.begins_line(start) {
                continue;
            }
            let indentation = source.indentation(start).rsplit('\x0c').next().unwrap_or("");
            if *expected.get_or_insert(indentation) != indentation {
                let line = shortened(source.text(child));
                self.tell(start, format!("not indented like the lines of its block: {line}"));
            }
        }
    }
}

/// Where the header of a compound statement or clause ends: at its own colon.
fn header_end(node: Node) -> usize {
    let mut end = node.end_byte();
    for child in node.children(&mut node.walk()) {
        match child.kind() {
            ":" => return child.start_byte(),
            "block" => {
                end = child.start_byte();
                break;
            }
            _ => {}
        }
    }
    end
}
