//! The control-flow graph as a picture: one SVG, a frame for each scope.
//!
//! Blocks stand one below the other in the order of the source, indented as its blocks are, so that
//! the picture reads as the program does. An arrow goes straight down to the next block; ways ahead
//! run in lanes at the right, ways back in lanes at the left. All ways to one block share a lane.
//! Work is `O(n log n)` in blocks and edges (times the lanes that lie side by side), for programs of
//! any size.

mod lanes;

use std::fmt::Write as _;

use lanes::Lane;

use super::cfg::{Block, BlockId, EdgeLabel, Graph, Program, Role, ScopeKind, StatementKind};

/// Widths of a character of code and of the words at edges, of a fixed-width face, in pixels.
const CHARACTER: f64 = 7.9;
const SMALL_CHARACTER: f64 = 6.7;
const LINE: f64 = 18.0;
/// White space around the lines of a block, and around a scope.
const INSET: f64 = 8.0;
const MARGIN: f64 = 24.0;
/// How far a block is indented inside another one.
const INDENT: f64 = 30.0;
/// Between blocks, and between two ways that leave or reach a block at one side.
const GAP: f64 = 24.0;
const PORT: f64 = 15.0;
/// From one lane to the next.
const LANE: f64 = 14.0;
/// Most characters of a line and lines of a block; what is cut is said.
const LINE_CHARACTERS: usize = 72;
const BLOCK_LINES: usize = 24;

/// Draws every scope of a program, the module first.
pub fn svg(program: &Program) -> String {
    let mut page = Page::default();
    for graph in &program.graphs {
        page.scope(program, graph);
    }
    page.finished()
}

/// What is drawn so far, scopes one below the other.
#[derive(Default)]
struct Page {
    content: String,
    width: f64,
    height: f64,
}

impl Page {
    fn scope(&mut self, program: &Program, graph: &Graph) {
        let Drawing { content, left, right, bottom } = Layout::of(program, graph).drawn();
        let title = match graph.scope.kind {
            ScopeKind::Module => "module".to_owned(),
            ScopeKind::Function => format!("function {}", graph.scope.name),
            ScopeKind::Class => format!("class {}", graph.scope.name),
        };
        let wide = (right - left).max(title.chars().count() as f64 * 9.0) + 2.0 * MARGIN;
        let high = bottom + 3.0 * MARGIN;
        let top = self.height + MARGIN;
        let _ = writeln!(
            self.content,
            "<g transform=\"translate({MARGIN} {top})\">\n\
             <rect class=\"scope\" width=\"{wide:.0}\" height=\"{high:.0}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>\n\
             <g transform=\"translate({:.1} {:.0})\">\n{content}</g>\n</g>",
            MARGIN + 4.0,
            escaped(&title),
            MARGIN - left,
            2.0 * MARGIN,
        );
        self.width = self.width.max(wide + 2.0 * MARGIN);
        self.height = top + high;
    }

    fn finished(self) -> String {
        let (width, height) = (self.width, self.height + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\">\n\
             <style>\n\
             text {{ font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; \
             fill: #22262b; }}\n\
             .code {{ font-size: 13px; white-space: pre; }}\n\
             .words {{ font-size: 11px; fill: #5a5f66; }}\n\
             .title {{ font-size: 15px; font-weight: bold; }}\n\
             .scope {{ fill: white; stroke: #c6cbd1; }}\n\
             .block {{ stroke: #5a5f66; }}\n\
             .edge {{ fill: none; stroke: #5a5f66; }}\n\
             .back {{ fill: none; stroke: #2c6db5; }}\n\
             .raised {{ fill: none; stroke: #b4453a; stroke-dasharray: 4 3; }}\n\
             </style>\n\
             <defs><marker id=\"head\" markerWidth=\"9\" markerHeight=\"7\" refX=\"8\" refY=\"3.5\" \
             orient=\"auto\"><path d=\"M0 0 9 3.5 0 7z\" fill=\"#5a5f66\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#f4f5f7\"/>\n{}</svg>\n",
            self.content
        )
    }
}

/// A drawn scope, and how far it goes; its first block's left is at 0, its top at 0.
struct Drawing {
    content: String,
    left: f64,
    right: f64,
    bottom: f64,
}

/// A block at its place.
struct Placed {
    id: BlockId,
    lines: Vec<String>,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// Ways drawn so far at the right and at the left side.
    ports: [usize; 2],
}

impl Placed {
    /// Where the next way leaves or reaches the block, at the right (0) or at the left (1).
    fn port(&mut self, side: usize) -> f64 {
        self.ports[side] += 1;
        self.top + PORT * (self.ports[side] as f64 - 0.25)
    }
}

/// A way that is not straight down to the next block.
#[derive(Clone, Copy)]
struct Way {
    /// Rows of the listing.
    from: usize,
    to: usize,
    label: EdgeLabel,
}

impl Way {
    fn side(&self) -> usize {
        usize::from(self.to <= self.from)
    }
}

/// Where everything of one scope lies.
struct Layout<'a> {
    graph: &'a Graph,
    blocks: Vec<Placed>,
    /// What is said at the arrow from a row to the next one, where there is one.
    straight: Vec<Option<EdgeLabel>>,
    ways: Vec<Way>,
}

impl<'a> Layout<'a> {
    fn of(program: &Program, graph: &'a Graph) -> Self {
        let rows = in_order(graph);
        let mut row_of = vec![0; graph.blocks.len()];
        for (row, (id, _)) in rows.iter().enumerate() {
            row_of[id.0] = row;
        }
        let mut straight = vec![None; rows.len()];
        let mut ways = Vec::new();
        for (from, edge) in graph.edges() {
            let way = Way { from: row_of[from.0], to: row_of[edge.to.0], label: edge.label };
            match way.to == way.from + 1 && straight[way.from].is_none() {
                true => straight[way.from] = Some(edge.label),
                false => ways.push(way),
            }
        }
        // Ports at each side: one for each way that leaves, one for all that come.
        let mut ports = vec![[0usize; 2]; rows.len()];
        let mut reached = vec![[false; 2]; rows.len()];
        for way in &ways {
            ports[way.from][way.side()] += 1;
            ports[way.to][way.side()] += usize::from(!reached[way.to][way.side()]);
            reached[way.to][way.side()] = true;
        }
        let mut top = 0.0;
        let blocks = rows.iter().zip(&ports).map(|(&(id, depth), ports)| {
            let lines = lines_of(program, graph.block(id));
            let long = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            let ports = ports[0].max(ports[1]) as f64;
            let height = (lines.len() as f64 * LINE + 2.0 * INSET).max((ports + 0.5) * PORT);
            let width = long as f64 * CHARACTER + 2.0 * INSET;
            let left = depth as f64 * INDENT;
            let placed = Placed { id, lines, left, top, width, height, ports: [0; 2] };
            top += height + GAP;
            placed
        });
        Self { graph, blocks: blocks.collect(), straight, ways }
    }

    fn drawn(mut self) -> Drawing {
        let mut out = String::new();
        for block in &self.blocks {
            let _ = writeln!(
                out,
                "<rect class=\"block\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\" \
                 fill=\"{}\"/>",
                block.left,
                block.top,
                block.width,
                block.height,
                colour(self.graph.block(block.id))
            );
            let first = block.top + (block.height - block.lines.len() as f64 * LINE) / 2.0 + 13.0;
            for (n, line) in block.lines.iter().enumerate() {
                let _ = writeln!(
                    out,
                    "<text class=\"code\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    block.left + INSET,
                    first + n as f64 * LINE,
                    escaped(line)
                );
            }
        }
        for (row, label) in self.straight.iter().enumerate() {
            let Some(label) = label else { continue };
            let (from, to) = (&self.blocks[row], &self.blocks[row + 1]);
            let (x, y) = (from.left + 14.0, from.top + from.height);
            let (to_x, middle) = (to.left + 14.0, y + GAP / 2.0);
            line(
                &mut out,
                class(*label, 0),
                &format!("M{x:.1} {y:.1}V{middle:.1}H{to_x:.1}V{:.1}", to.top),
                true,
            );
            words(&mut out, x.max(to_x) + 6.0, middle + 4.0, *label);
        }
        let left = self.lanes(&mut out, 1);
        let right = self.lanes(&mut out, 0);
        let bottom = self.blocks.last().map_or(0.0, |block| block.top + block.height);
        Drawing { content: out, left, right, bottom }
    }

    /// Draws the ways at one side; returns how far they go.
    fn lanes(&mut self, out: &mut String, side: usize) -> f64 {
        let mut ways: Vec<Way> =
            self.ways.iter().copied().filter(|way| way.side() == side).collect();
        ways.sort_by_key(|way| (way.to, way.from));
        let sharing: Vec<&[Way]> = ways.chunk_by(|a, b| a.to == b.to).collect();
        let spans = sharing.iter().map(|ways| {
            let ends = || ways.iter().flat_map(|way| [way.from, way.to]);
            (ends().min().unwrap_or(0), ends().max().unwrap_or(0))
        });
        let Lane { of, count } = lanes::assign(&spans.collect::<Vec<_>>());
        // Lanes begin beside the widest block and the words at it.
        let wide = |way: &Way| word(way.label).chars().count() as f64 * SMALL_CHARACTER + 16.0;
        let ends = self.blocks.iter().map(|block| block.left + block.width);
        let near = match side {
            0 => ways
                .iter()
                .map(|way| self.blocks[way.from].left + self.blocks[way.from].width + wide(way))
                .chain(ends)
                .fold(0.0, f64::max),
            _ => ways.iter().map(|way| self.blocks[way.from].left - wide(way)).fold(0.0, f64::min),
        };
        let away = if side == 0 { LANE } else { -LANE };
        // What comes to a block is drawn first, so that its arrow is at the block's top.
        let arrivals: Vec<f64> =
            sharing.iter().map(|ways| self.blocks[ways[0].to].port(side)).collect();
        for (n, ways) in sharing.iter().enumerate() {
            let lane = near + away * (of[n] + 1) as f64;
            for way in *ways {
                let y = self.blocks[way.from].port(side);
                let (from, to) = (&self.blocks[way.from], &self.blocks[way.to]);
                let edge = |block: &Placed| block.left + if side == 0 { block.width } else { 0.0 };
                let (x, to_x) = (edge(from), edge(to));
                let path = format!("M{x:.1} {y:.1}H{lane:.1}V{:.1}H{to_x:.1}", arrivals[n]);
                line(out, class(way.label, side), &path, way.from == ways[0].from);
                let wide = wide(way);
                words(out, if side == 0 { x + 6.0 } else { x - wide + 10.0 }, y - 3.0, way.label);
            }
        }
        near + away * count as f64
    }
}

/// The blocks in the order of the source, each with how deeply it lies in others; what no way and no
/// `after` reaches comes behind, the exit last.
fn in_order(graph: &Graph) -> Vec<(BlockId, usize)> {
    let mut later = vec![false; graph.blocks.len()];
    later[graph.exit.0] = true;
    for after in graph.blocks.iter().filter_map(|block| block.after) {
        later[after.0] = true;
    }
    let mut seen = vec![false; graph.blocks.len()];
    let mut rows = Vec::with_capacity(graph.blocks.len());
    let rest = (0..graph.blocks.len()).rev().map(BlockId).filter(|id| *id != graph.exit);
    let mut open: Vec<(BlockId, usize)> =
        [(graph.exit, 0)].into_iter().chain(rest.map(|id| (id, 0))).collect();
    open.push((graph.entry, 0));
    while let Some((id, depth)) = open.pop() {
        if std::mem::replace(&mut seen[id.0], true) {
            continue;
        }
        rows.push((id, depth));
        let block = graph.block(id);
        open.extend(block.after.map(|after| (after, depth)));
        let inside = depth + usize::from(is_head(&block.role));
        let ahead = block.edges.iter().rev().filter(|edge| !later[edge.to.0]);
        open.extend(ahead.map(|edge| (edge.to, inside)));
    }
    rows
}

/// Whether what a block leads to lies inside of it.
fn is_head(role: &Role) -> bool {
    !matches!(
        role,
        Role::Entry
            | Role::Exit
            | Role::Plain
            | Role::LoopEnd { .. }
            | Role::Join { .. }
            | Role::Unreachable
    )
}

fn line(out: &mut String, class: &str, path: &str, arrow: bool) {
    let head = if arrow { " marker-end=\"url(#head)\"" } else { "" };
    let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"{head}/>");
}

fn words(out: &mut String, x: f64, y: f64, label: EdgeLabel) {
    let text = word(label);
    if !text.is_empty() {
        let _ = writeln!(out, "<text class=\"words\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }
}

fn class(label: EdgeLabel, side: usize) -> &'static str {
    match (label, side) {
        (EdgeLabel::Exception | EdgeLabel::Handler, _) => "raised",
        (_, 1) => "back",
        _ => "edge",
    }
}

/// The lines of a block: what it is, then its statements.
fn lines_of(program: &Program, block: &Block) -> Vec<String> {
    let head = match &block.role {
        Role::Entry => Some("enter".to_owned()),
        Role::Exit => Some("exit".to_owned()),
        Role::Plain => None,
        Role::Branch { condition } => Some(format!("if {}", condition.text)),
        Role::Loop { header }
        | Role::LoopElse { header, .. }
        | Role::Try { header }
        | Role::Handler { header, .. }
        | Role::TryElse { header }
        | Role::Finally { header }
        | Role::With { header }
        | Role::Match { header }
        | Role::Case { header, .. } => Some(header.text.clone()),
        Role::LoopEnd { .. } => Some("(loop's end)".to_owned()),
        Role::Handlers { .. } => Some("(handlers)".to_owned()),
        Role::Join { .. } => Some("(join)".to_owned()),
        Role::Unreachable => Some("(not reached)".to_owned()),
    };
    let statements = block.statements.iter().map(|statement| match statement.kind {
        StatementKind::Define(id) => program.graph(id).scope.header.text.clone(),
        _ => statement.code.text.clone(),
    });
    let texts: Vec<String> = head.into_iter().chain(statements).collect();
    let mut lines: Vec<String> = texts.iter().flat_map(|text| text.lines()).map(cut).collect();
    if lines.len() > BLOCK_LINES {
        let more = lines.len() - (BLOCK_LINES - 1);
        lines.truncate(BLOCK_LINES - 1);
        lines.push(format!("… {more} more lines"));
    }
    if lines.is_empty() {
        lines.push("(nothing)".to_owned());
    }
    lines
}

/// A line of bounded length.
fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn colour(block: &Block) -> &'static str {
    match block.role {
        Role::Entry | Role::Exit => "#e3e6ea",
        Role::Branch { .. } | Role::Match { .. } | Role::Case { .. } => "#fff4cf",
        Role::Loop { .. } | Role::LoopEnd { .. } | Role::LoopElse { .. } => "#ddebfa",
        Role::Try { .. }
        | Role::Handlers { .. }
        | Role::Handler { .. }
        | Role::TryElse { .. }
        | Role::Finally { .. }
        | Role::With { .. } => "#e5f2e0",
        Role::Unreachable => "#f8dddd",
        Role::Plain | Role::Join { .. } => "#ffffff",
    }
}

fn word(label: EdgeLabel) -> &'static str {
    match label {
        EdgeLabel::Next => "",
        EdgeLabel::True => "holds",
        EdgeLabel::False => "does not hold",
        EdgeLabel::LoopBody | EdgeLabel::Body => "body",
        EdgeLabel::LoopExit => "ends",
        EdgeLabel::LoopElse => "else",
        EdgeLabel::Repeat => "again",
        EdgeLabel::Break => "break",
        EdgeLabel::Continue => "continue",
        EdgeLabel::Return => "return",
        EdgeLabel::Exception => "raises",
        EdgeLabel::Handler => "caught",
        EdgeLabel::Suppressed => "swallowed",
        EdgeLabel::Case => "case",
        EdgeLabel::NoCase => "no case",
    }
}

/// Text as it stands in XML; what XML cannot hold is shown as U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\t' => out.push_str("    "),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
