//! The prefix tree of one model: what has been computed, by the ids that lead there.
//!
//! A radix tree whose edges are pages: a node holds up to 16 ids, a multiple of 16 positions from
//! the start, and the page with their keys, values and hidden rows. Only full nodes have children.
//! Each adapter has a root of its own. Every page in use belongs to exactly one node.
//!
//! A page is only ever appended to: a row behind the last one of its node is written in place, by
//! whoever comes first; who wants to go on from an earlier position takes a copy of that page. So
//! nodes can be shared to the id, readers of a beginning see what they saw before, and a fork copies
//! one page at most.
//!
//! Calls *pin* the nodes that they stand on. A node without pins stays until its page is wanted, and
//! leaves when it is the least recently used one without children. A node that turns out to hold the
//! same 16 ids as its sibling is *detached*: it serves those that pin it and then goes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::prefix::Prefix;
use super::waste::GivenUp;
use crate::device::{PAGE_POSITIONS, PageId};
use crate::model::AdapterId;
use crate::text::TokenId;

/// A node that may be gone since: generations tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId {
    index: u32,
    generation: u32,
}

/// Up to 16 ids, in the order of dictionaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    ids: [TokenId; PAGE_POSITIONS],
    len: u8,
}

impl Block {
    const EMPTY: Self = Self { ids: [TokenId(0); PAGE_POSITIONS], len: 0 };

    /// The first of `ids`, as many as fit.
    fn of(ids: &[TokenId]) -> Self {
        let mut block = Self::EMPTY;
        block.push(&ids[..ids.len().min(PAGE_POSITIONS)]);
        block
    }

    fn ids(&self) -> &[TokenId] {
        &self.ids[..self.len()]
    }

    fn len(&self) -> usize {
        usize::from(self.len)
    }

    fn is_full(&self) -> bool {
        self.len() == PAGE_POSITIONS
    }

    fn push(&mut self, ids: &[TokenId]) {
        let (begin, end) = (self.len(), self.len() + ids.len());
        self.ids[begin..end].copy_from_slice(ids);
        self.len = end as u8;
    }

    fn cut(&mut self, len: usize) {
        self.ids[len..].fill(TokenId(0));
        self.len = len as u8;
    }

    fn common(&self, other: &Self) -> usize {
        self.ids().iter().zip(other.ids()).take_while(|(a, b)| a == b).count()
    }
}

impl Ord for Block {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.ids().cmp(other.ids())
    }
}

impl PartialOrd for Block {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The slot is free.
    Gone,
    Root,
    Attached,
    /// No longer to be found; goes with its last pin.
    Detached,
}

#[derive(Debug)]
struct Node {
    generation: u32,
    state: State,
    parent: u32,
    /// All ids before the node's own.
    before: Prefix,
    block: Block,
    page: PageId,
    pins: u32,
    children: BTreeSet<(Block, u32)>,
    /// The step in which someone is writing behind the node's last id.
    written_in: u64,
    last_used: u64,
}

/// All prefixes of one model that are in pages.
#[derive(Debug)]
pub(super) struct PrefixTree {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    roots: BTreeMap<Option<AdapterId>, u32>,
    /// Attached nodes without pins and children, the least recently used first.
    leaving: BTreeSet<(u64, u32)>,
    /// Attached nodes without pins: all of them can leave, one after the other.
    unpinned: usize,
    /// Pages that no node needs any more, for the pool to take back.
    spare: Vec<PageId>,
    given_up: GivenUp,
}

impl PrefixTree {
    /// An empty tree that remembers so many of the prefixes that left it.
    pub(super) fn new(remembered: usize) -> Self {
        Self {
            nodes: Vec::new(),
            vacant: Vec::new(),
            roots: BTreeMap::new(),
            leaving: BTreeSet::new(),
            unpinned: 0,
            spare: Vec::new(),
            given_up: GivenUp::new(remembered),
        }
    }

    /// Pages whose prefixes nobody uses.
    pub(super) fn unpinned(&self) -> usize {
        self.unpinned
    }

    /// Whether a prefix was in pages and is no longer.
    pub(super) fn gave_up(&self, prefix: Prefix) -> bool {
        self.given_up.contains(prefix)
    }

    /// Notes a prefix whose row was computed and is of no use.
    pub(super) fn give_up(&mut self, prefix: Prefix) {
        self.given_up.add(prefix);
    }

    pub(super) fn page(&self, node: NodeId) -> PageId {
        self.nodes[node.index as usize].page
    }

    /// The prefix of the first `computed` ids along a path.
    pub(super) fn prefix(
        &self,
        adapter: Option<AdapterId>,
        path: &[NodeId],
        computed: usize,
    ) -> Prefix {
        match path.last() {
            None => Prefix::empty(adapter),
            Some(last) => {
                let node = self.node(last.index);
                let within = computed - (path.len() - 1) * PAGE_POSITIONS;
                node.before.after(&node.block.ids()[..within])
            }
        }
    }

    /// How many whole pages of `ids` are pinned by someone.
    pub(super) fn pinned_pages(&mut self, adapter: Option<AdapterId>, ids: &[TokenId]) -> usize {
        let root = self.root(adapter);
        let (nodes, _) = self.walk(root, ids);
        let held = nodes.iter().map(|&index| self.node(index));
        held.take_while(|node| node.pins > 0 && node.block.is_full()).count()
    }

    /// How many of `ids` are computed, `computed` of them along a pinned path.
    pub(super) fn reach(
        &mut self,
        adapter: Option<AdapterId>,
        ids: &[TokenId],
        path: &[NodeId],
        computed: usize,
    ) -> usize {
        self.beyond(adapter, ids, path, computed).1.max(computed)
    }

    /// Pins the nodes of a path that are still there and follows `ids` from there on; answers with
    /// how many ids are computed. The path is a hint that only saves time: its last, partly used
    /// node is looked for anew.
    pub(super) fn resume(
        &mut self,
        adapter: Option<AdapterId>,
        ids: &[TokenId],
        path: &mut Vec<NodeId>,
        computed: usize,
    ) -> usize {
        let full = computed.min(ids.len()) / PAGE_POSITIONS;
        let alive = path
            .iter()
            .take(full)
            .take_while(|&&id| self.is_attached(id) && self.node(id.index).block.is_full());
        let alive = alive.count();
        path.truncate(alive);
        path.iter().for_each(|&id| self.pin(id.index));
        self.follow(adapter, ids, path, alive * PAGE_POSITIONS)
    }

    /// Extends a pinned path by what is computed of `ids` behind it; answers with how many ids are
    /// computed then.
    pub(super) fn follow(
        &mut self,
        adapter: Option<AdapterId>,
        ids: &[TokenId],
        path: &mut Vec<NodeId>,
        computed: usize,
    ) -> usize {
        let (nodes, reached) = self.beyond(adapter, ids, path, computed);
        if reached <= computed {
            return computed;
        }
        nodes.iter().for_each(|&index| self.pin(index));
        let full = computed / PAGE_POSITIONS;
        if let Some(shorter) = path.get(full).copied() {
            path.truncate(full);
            self.unpin(shorter.index, 0);
        }
        path.extend(nodes.iter().map(|&index| self.id(index)));
        reached
    }

    /// The nodes that hold most of `ids` behind the full ones of a path, and how many ids are reached
    /// with them.
    fn beyond(
        &mut self,
        adapter: Option<AdapterId>,
        ids: &[TokenId],
        path: &[NodeId],
        computed: usize,
    ) -> (Vec<u32>, usize) {
        let full = computed / PAGE_POSITIONS;
        let begin = full * PAGE_POSITIONS;
        let parent = self.parent(adapter, &path[..full]);
        let (nodes, more) = self.walk(parent, ids.get(begin..).unwrap_or_default());
        (nodes, begin + more)
    }

    /// The nodes under `parent` that hold most of `ids`, and how many of them.
    fn walk(&self, mut parent: u32, ids: &[TokenId]) -> (Vec<u32>, usize) {
        let (mut nodes, mut reached) = (Vec::new(), 0);
        while reached < ids.len()
            && let Some((child, common)) = self.nearest_child(parent, &ids[reached..])
            && common > 0
        {
            nodes.push(child);
            reached += common;
            if common < PAGE_POSITIONS {
                break;
            }
            parent = child;
        }
        (nodes, reached)
    }

    /// Unpins all nodes of a path, which stays as a hint for [`PrefixTree::resume`].
    pub(super) fn release(&mut self, path: &[NodeId], clock: u64) {
        path.iter().for_each(|id| self.unpin(id.index, clock));
    }

    /// A page that no node needs any more.
    pub(super) fn take_spare(&mut self) -> Option<PageId> {
        self.spare.pop()
    }

    /// Claims the place behind the first `filled` ids of a node for rows of this step. False when
    /// other rows are there, or are being written: then the page must be copied.
    pub(super) fn claim(&mut self, node: NodeId, filled: usize, step: u64) -> bool {
        let node = &mut self.nodes[node.index as usize];
        if node.state != State::Attached || node.block.len() != filled || node.written_in == step {
            return false;
        }
        node.written_in = step;
        true
    }

    /// Puts a page with `ids` behind a pinned path, pinned once. A full page that is there already
    /// is spared.
    pub(super) fn insert(
        &mut self,
        adapter: Option<AdapterId>,
        path: &[NodeId],
        ids: &[TokenId],
        page: PageId,
    ) -> NodeId {
        let parent = self.parent(adapter, path);
        let block = Block::of(ids);
        if let Some(twin) = self.full_twin(parent, &block) {
            self.pin(twin);
            self.spare.push(page);
            return self.id(twin);
        }
        let above = self.node(parent);
        let before = above.before.after(above.block.ids());
        let index = self.take_slot();
        let node = &mut self.nodes[index as usize];
        node.state = State::Attached;
        (node.parent, node.before, node.block, node.page) = (parent, before, block, page);
        (node.pins, node.written_in, node.last_used) = (1, 0, 0);
        self.nodes[parent as usize].children.insert((block, index));
        self.id(index)
    }

    /// Adds ids whose rows were written behind a pinned node's last one. When the node is then the
    /// twin of a full one, that one takes its place.
    pub(super) fn extend(&mut self, node: NodeId, ids: &[TokenId], clock: u64) -> NodeId {
        let index = node.index;
        let (parent, block) = (self.node(index).parent, self.node(index).block);
        self.nodes[parent as usize].children.remove(&(block, index));
        self.nodes[index as usize].block.push(ids);
        let block = self.node(index).block;
        if let Some(twin) = self.full_twin(parent, &block) {
            self.nodes[index as usize].state = State::Detached;
            self.pin(twin);
            self.unpin(index, clock);
            return self.id(twin);
        }
        self.nodes[parent as usize].children.insert((block, index));
        node
    }

    /// Forgets the ids of a node from `len` on, if nobody else needs them; the node is then another,
    /// and attached.
    pub(super) fn cut(&mut self, node: NodeId, len: usize) -> Option<NodeId> {
        let index = node.index;
        let found = self.node(index);
        if found.pins != 1 || !found.children.is_empty() {
            return None;
        }
        let (parent, block) = (found.parent, found.block);
        if found.state == State::Attached {
            self.forget(index, len);
            self.nodes[parent as usize].children.remove(&(block, index));
        }
        let node = &mut self.nodes[index as usize];
        node.state = State::Attached;
        node.block.cut(len);
        node.generation += 1;
        let block = node.block;
        self.nodes[parent as usize].children.insert((block, index));
        Some(self.id(index))
    }

    /// When the node that would leave next was used.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.leaving.first().map(|&(used, _)| used)
    }

    /// Lets the least recently used node go, and answers with its page.
    pub(super) fn evict(&mut self) -> Option<PageId> {
        let (_, index) = self.leaving.pop_first()?;
        self.unpinned -= 1;
        self.forget(index, 0);
        self.detach(index);
        Some(self.vacate(index))
    }

    /// The pages of all nodes, and those that wait to be taken back.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageId> {
        let held = |node: &&Node| matches!(node.state, State::Attached | State::Detached);
        self.nodes.iter().filter(held).map(|node| node.page).chain(self.spare.iter().copied())
    }

    /// Checks everything that must hold, `paths` being all that are pinned.
    pub(super) fn check<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a [NodeId]>,
    ) -> Result<(), String> {
        let mut pins = vec![0u32; self.nodes.len()];
        for &id in paths.into_iter().flatten() {
            if self.node(id.index).generation != id.generation {
                return Err(format!("a pinned path names node {} of another time", id.index));
            }
            pins[id.index as usize] += 1;
        }
        let (mut unpinned, mut leaving) = (0, BTreeSet::new());
        for (index, node) in self.nodes.iter().enumerate() {
            if node.pins != pins[index] {
                let counted = pins[index];
                return Err(format!("node {index} has {} pins, {counted} counted", node.pins));
            }
            if node.state == State::Attached {
                let above = self.node(node.parent);
                let known = above.children.contains(&(node.block, index as u32));
                let fits = above.state == State::Root
                    || (above.state == State::Attached && above.block.is_full());
                if !known || !fits || node.block.len() == 0 {
                    return Err(format!("node {index} does not hang where it should"));
                }
                if node.before != above.before.after(above.block.ids()) {
                    return Err(format!("node {index} has another prefix than its place"));
                }
                if node.pins == 0 {
                    unpinned += 1;
                    if node.children.is_empty() {
                        leaving.insert((node.last_used, index as u32));
                    }
                }
            }
            let dead_ends = node.state == State::Detached || !node.block.is_full();
            if dead_ends && node.state != State::Root && !node.children.is_empty() {
                return Err(format!("node {index} has children and should not"));
            }
            if node.state == State::Detached && node.pins == 0 {
                return Err(format!("node {index} is detached and nobody holds it"));
            }
        }
        if unpinned != self.unpinned || leaving != self.leaving {
            return Err("the unpinned nodes are miscounted".to_owned());
        }
        Ok(())
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn id(&self, index: u32) -> NodeId {
        NodeId { index, generation: self.node(index).generation }
    }

    fn is_attached(&self, id: NodeId) -> bool {
        let node = self.node(id.index);
        node.generation == id.generation && node.state == State::Attached
    }

    /// The node under which what follows a path of full nodes hangs.
    fn parent(&mut self, adapter: Option<AdapterId>, path: &[NodeId]) -> u32 {
        match path.last() {
            Some(last) => last.index,
            None => self.root(adapter),
        }
    }

    /// The root of a model with or without an adapter.
    fn root(&mut self, adapter: Option<AdapterId>) -> u32 {
        if let Some(&root) = self.roots.get(&adapter) {
            return root;
        }
        let index = self.take_slot();
        let node = &mut self.nodes[index as usize];
        (node.state, node.block, node.pins) = (State::Root, Block::EMPTY, 0);
        node.before = Prefix::empty(adapter);
        self.roots.insert(adapter, index);
        index
    }

    /// The child that has most ids in common with the beginning of `ids`. In the order of
    /// dictionaries it is a neighbour of where they would stand.
    fn nearest_child(&self, parent: u32, ids: &[TokenId]) -> Option<(u32, usize)> {
        let wanted = Block::of(ids);
        let children = &self.node(parent).children;
        let after = children.range((wanted, 0)..).next();
        let before = children.range(..(wanted, 0)).next_back();
        let found = [after, before].into_iter().flatten();
        let mut best: Option<(u32, usize)> = None;
        for &(block, index) in found {
            let common = block.common(&wanted);
            if best.is_none_or(|(_, most)| common > most) {
                best = Some((index, common));
            }
        }
        best
    }

    fn full_twin(&self, parent: u32, block: &Block) -> Option<u32> {
        if !block.is_full() {
            return None;
        }
        let found = self.node(parent).children.range((*block, 0)..).next();
        found.filter(|(other, _)| other == block).map(|&(_, index)| index)
    }

    fn pin(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        if node.pins == 0 && node.state == State::Attached {
            self.unpinned -= 1;
            self.leaving.remove(&(node.last_used, index));
        }
        node.pins += 1;
    }

    /// Takes a pin away; a detached node goes with its last one.
    fn unpin(&mut self, index: u32, clock: u64) {
        let node = &mut self.nodes[index as usize];
        assert!(node.pins > 0, "node {index} is not pinned");
        node.pins -= 1;
        if node.pins > 0 {
            return;
        }
        if node.state == State::Detached {
            let page = self.vacate(index);
            return self.spare.push(page);
        }
        node.last_used = node.last_used.max(clock);
        self.unpinned += 1;
        if node.children.is_empty() {
            self.leaving.insert((node.last_used, index));
        }
    }

    /// Takes a node from under its parent, which may then leave too.
    fn detach(&mut self, index: u32) {
        let (parent, block) = (self.node(index).parent, self.node(index).block);
        let above = &mut self.nodes[parent as usize];
        above.children.remove(&(block, index));
        if above.state == State::Attached && above.pins == 0 && above.children.is_empty() {
            self.leaving.insert((above.last_used, parent));
        }
    }

    /// Remembers the ids of a node from `len` on as given up.
    fn forget(&mut self, index: u32, len: usize) {
        let node = &self.nodes[index as usize];
        let mut prefix = node.before.after(&node.block.ids()[..len]);
        for &id in &node.block.ids()[len..] {
            prefix = prefix.then(id);
            self.given_up.add(prefix);
        }
    }

    fn take_slot(&mut self) -> u32 {
        if let Some(index) = self.vacant.pop() {
            return index;
        }
        self.nodes.push(Node {
            generation: 0,
            state: State::Gone,
            parent: 0,
            before: Prefix::empty(None),
            block: Block::EMPTY,
            page: PageId(u32::MAX),
            pins: 0,
            children: BTreeSet::new(),
            written_in: 0,
            last_used: 0,
        });
        self.nodes.len() as u32 - 1
    }

    fn vacate(&mut self, index: u32) -> PageId {
        let node = &mut self.nodes[index as usize];
        node.state = State::Gone;
        node.generation += 1;
        self.vacant.push(index);
        std::mem::replace(&mut node.page, PageId(u32::MAX))
    }
}
