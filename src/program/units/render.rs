//! From graphs to units: a walk with a stack of its own, so that no program is too long for it.

use super::super::cfg::{
    Block, BlockId, Code, EdgeLabel, Graph, GraphId, Program, Role, ScopeKind, StatementKind,
    quoted,
};
use super::text::{Draft, Item, Mark};

/// The units of a program, before they are written out.
pub(super) fn program(program: &Program) -> Vec<Draft> {
    let mut renderer = Renderer {
        program,
        told: program.graphs.iter().map(|graph| vec![false; graph.blocks.len()]).collect(),
        reserved: program.graphs.iter().map(reserved).collect(),
        tasks: Vec::new(),
        pending: Vec::new(),
        drafts: Vec::new(),
    };
    renderer.enter(Program::MODULE);
    while let Some(task) = renderer.tasks.pop() {
        renderer.step(task);
    }
    renderer.drafts
}

/// Removes the units that are only a stub of the module's function `name` and come before the
/// one that has a body.
pub(super) fn remove_stubs(program: &Program, drafts: &mut Vec<Draft>, name: &str) {
    let begins = |draft: &Draft| {
        let Some(Item { mark: Mark::EnterFunction(id), .. }) = draft.items.first() else {
            return false;
        };
        let scope = &program.graph(*id).scope;
        scope.name == name && scope.parent == Some(Program::MODULE)
    };
    let is_stub = |draft: &Draft| {
        begins(draft)
            && draft.items[1..].iter().all(|item| match item.mark {
                Mark::Statement => matches!(item.text.as_str(), "pass" | "..."),
                mark => mark == Mark::Exit,
            })
    };
    if let Some(real) = drafts.iter().rposition(|draft| begins(draft) && !is_stub(draft)) {
        let rest = drafts.split_off(real);
        drafts.retain(|draft| !is_stub(draft));
        drafts.extend(rest);
    }
}

/// The blocks of a graph that are told only at their turn: after another one, or never.
fn reserved(graph: &Graph) -> Vec<bool> {
    let mut reserved = vec![false; graph.blocks.len()];
    reserved[graph.exit.0] = true;
    for after in graph.blocks.iter().filter_map(|block| block.after) {
        reserved[after.0] = true;
    }
    reserved
}

/// Whether a block begins a section of a `try`; sections follow each other by `after`.
fn is_section(block: &Block) -> bool {
    matches!(
        block.role,
        Role::Try { .. } | Role::Handlers { .. } | Role::TryElse { .. } | Role::Finally { .. }
    )
}

/// What is still to be told.
enum Task {
    /// A block, met over an edge of another one or after it.
    Block { graph: GraphId, block: BlockId, over: Option<(BlockId, EdgeLabel)> },
    /// The statements of a block from one on.
    Statements { graph: GraphId, block: BlockId, from: usize },
    /// The end of a `try`.
    TryEnd,
    /// The end of a scope.
    Leave { graph: GraphId },
}

struct Renderer<'p> {
    program: &'p Program,
    told: Vec<Vec<bool>>,
    reserved: Vec<Vec<bool>>,
    tasks: Vec<Task>,
    /// Marks that are glued to the next unit.
    pending: Vec<Item>,
    drafts: Vec<Draft>,
}

impl<'p> Renderer<'p> {
    fn step(&mut self, task: Task) {
        match task {
            Task::Block { graph, block, over } => self.block(graph, block, over),
            Task::Statements { graph, block, from } => self.statements(graph, block, from),
            Task::TryEnd => self.close(Mark::End, "#TRY END#".to_owned()),
            Task::Leave { graph } => self.leave(graph),
        }
    }

    fn enter(&mut self, graph: GraphId) {
        let scope = &self.program.graph(graph).scope;
        let (mark, word) = match scope.kind {
            ScopeKind::Module => (None, ""),
            ScopeKind::Function => (Some(Mark::EnterFunction(graph)), "FUNCTION"),
            ScopeKind::Class => (Some(Mark::EnterClass), "CLASS"),
        };
        if let Some(mark) = mark {
            let text = format!("#ENTER {word}# {} {{", quoted(&scope.header.text));
            self.mark(mark, text, &scope.header);
        }
        self.tasks.push(Task::Leave { graph });
        let entry = self.program.graph(graph).entry;
        self.tasks.push(Task::Block { graph, block: entry, over: None });
    }

    /// Ends the scope in its last unit.
    fn leave(&mut self, graph: GraphId) {
        let scope = &self.program.graph(graph).scope;
        let word = match scope.kind {
            ScopeKind::Module => return self.flush(),
            ScopeKind::Function => "FUNCTION",
            ScopeKind::Class => "CLASS",
        };
        self.close(Mark::Exit, format!("}} #EXIT {word}# {}", quoted(&scope.name)));
    }

    /// Glues an end to the last unit.
    fn close(&mut self, mark: Mark, text: String) {
        self.flush();
        if let Some(last) = self.drafts.last_mut() {
            last.items.push(Item { mark, text, lines: Vec::new() });
        }
    }

    fn block(&mut self, id: GraphId, at: BlockId, over: Option<(BlockId, EdgeLabel)>) {
        if std::mem::replace(&mut self.told[id.0][at.0], true) {
            return;
        }
        let graph = self.program.graph(id);
        let block = graph.block(at);
        if let Some((from, label)) = over {
            self.side(graph.block(from), label);
        }
        let goes_on = !block.statements.is_empty()
            || block.edges.iter().any(|edge| self.is_next(id, edge.to));
        if goes_on || !matches!(block.role, Role::Join { .. }) {
            self.role(graph, block);
        }
        if let Some(after) = block.after {
            self.tasks.push(Task::Block { graph: id, block: after, over: None });
        }
        if is_section(block) && !block.after.is_some_and(|next| is_section(graph.block(next))) {
            self.tasks.push(Task::TryEnd);
        }
        for edge in block.edges.iter().rev() {
            if self.is_next(id, edge.to) {
                let over = Some((at, edge.label));
                self.tasks.push(Task::Block { graph: id, block: edge.to, over });
            }
        }
        self.tasks.push(Task::Statements { graph: id, block: at, from: 0 });
    }

    /// Whether a block is told when an edge leads to it.
    fn is_next(&self, graph: GraphId, block: BlockId) -> bool {
        !self.reserved[graph.0][block.0] && !self.told[graph.0][block.0]
    }

    /// What is said when a side of a head begins.
    fn side(&mut self, head: &'p Block, label: EdgeLabel) {
        match (&head.role, label) {
            (Role::Branch { condition }, EdgeLabel::True) => {
                let text = format!("#BRANCH# {} holds", quoted(&condition.text));
                self.mark(Mark::Branch, text, condition);
            }
            (Role::Branch { condition }, EdgeLabel::False) => {
                let text = format!("#BRANCH# {} does not hold", quoted(&condition.text));
                self.mark(Mark::Branch, text, condition);
            }
            (Role::Match { header }, EdgeLabel::NoCase) => {
                let text = format!("#MATCH# {}: no case matches", quoted(&header.text));
                self.mark(Mark::Match, text, header);
            }
            _ => {}
        }
    }

    /// What is said when a block begins.
    fn role(&mut self, graph: &'p Graph, block: &'p Block) {
        match &block.role {
            Role::Loop { header } => {
                let text = format!("#LOOP BEGIN# {}", quoted(&header.text));
                self.mark(Mark::LoopBegin, text, header);
                self.flush();
            }
            Role::LoopEnd { of } => {
                if let Role::Loop { header } = &graph.block(*of).role {
                    let text = format!("#LOOP END# {}", quoted(&header.text));
                    self.mark(Mark::LoopEnd, text, header);
                    self.flush();
                }
            }
            Role::LoopElse { of, header } => {
                let text = match &graph.block(*of).role {
                    Role::Loop { header } => quoted(&header.text),
                    _ => String::new(),
                };
                let text = format!("#LOOP ELSE# {text} ended without `break`");
                self.mark(Mark::LoopElse, text, header);
            }
            Role::Try { header } => self.mark(Mark::Try, "#TRY#".to_owned(), header),
            Role::Handler { header, caught } => {
                let space = if caught.is_empty() || caught.starts_with('*') { "" } else { " " };
                self.mark(Mark::Except, format!("#EXCEPT{space}{caught}#"), header);
            }
            Role::TryElse { header } => {
                self.mark(Mark::Else, "#ELSE# nothing was raised".to_owned(), header);
            }
            Role::Finally { header } => {
                self.mark(Mark::Finally, "#FINALLY# in every case".to_owned(), header);
            }
            Role::With { header } => {
                self.mark(Mark::With, format!("#WITH# {}", quoted(&header.text)), header);
            }
            Role::Case { of, header, index } => self.case(graph.block(*of), header, *index),
            Role::Join { of } => self.join(graph.block(*of)),
            Role::Unreachable => {
                let text = "#UNREACHABLE# no path leads here".to_owned();
                self.mark(Mark::Unreachable, text, &Code::default());
            }
            Role::Entry | Role::Exit | Role::Plain => {}
            Role::Branch { .. } | Role::Match { .. } | Role::Handlers { .. } => {}
        }
    }

    fn case(&mut self, head: &'p Block, header: &'p Code, index: usize) {
        if let Role::Match { header } = &head.role {
            self.mark(Mark::Match, format!("#MATCH# {}", quoted(&header.text)), header);
        }
        let which = if index == 0 { "matches" } else { "matches, no case above does" };
        self.mark(Mark::Match, format!("#CASE# {} {which}", quoted(&header.text)), header);
    }

    /// Where the code goes on after a construct.
    fn join(&mut self, head: &'p Block) {
        let text = match &head.role {
            Role::Branch { condition } => format!("#BRANCH END# {}", quoted(&condition.text)),
            Role::Match { header } => format!("#MATCH END# {}", quoted(&header.text)),
            Role::With { header } => format!("#WITH END# {}", quoted(&header.text)),
            Role::Loop { header } => format!("#LOOP ELSE END# {}", quoted(&header.text)),
            _ => return,
        };
        self.mark(Mark::End, text, &Code::default());
    }

    /// A run of straight code is a unit; a definition is told in its place.
    fn statements(&mut self, graph: GraphId, block: BlockId, from: usize) {
        let statements = &self.program.graph(graph).block(block).statements;
        let mut items = Vec::new();
        let mut inner = None;
        for (at, statement) in statements.iter().enumerate().skip(from) {
            if let StatementKind::Define(definition) = statement.kind {
                inner = Some((at + 1, definition));
                break;
            }
            items.push(Item::new(Mark::Statement, statement.code.clone()));
        }
        if !items.is_empty() {
            self.pending.append(&mut items);
            self.flush();
        }
        if let Some((from, definition)) = inner {
            self.tasks.push(Task::Statements { graph, block, from });
            self.enter(definition);
        }
    }

    fn mark(&mut self, mark: Mark, text: String, code: &Code) {
        self.pending.push(Item { mark, text, lines: code.lines.clone() });
    }

    /// Makes a unit of what is pending.
    fn flush(&mut self) {
        let items = std::mem::take(&mut self.pending);
        if !items.is_empty() {
            self.drafts.push(Draft { items });
        }
    }
}
