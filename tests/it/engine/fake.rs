//! A deterministic decoder without weights. A row's hidden state is a hash of everything that it
//! reads from its pages, position by position, so a page that is lost, shared in error or written
//! by another sequence shows in the logits. Pages begin filled with rubbish.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use unsay::device::{PAGE_POSITIONS, PageId};
use unsay::engine::{Engine, EngineError, EngineOptions, Hosted};
use unsay::model::{AdapterId, Batch, Decoder, HiddenAt, ModelError};
use unsay::text::TokenId;

pub const VOCAB: usize = 32;
pub const MODEL: &str = "fake";
pub const ADAPTER: AdapterId = AdapterId(5);

/// The text of the fake's tokens: letters, a character in three pieces, longer ones, an empty one.
pub fn token_bytes(id: TokenId) -> Vec<u8> {
    match id.0 {
        26 => vec![0xE2],
        27 => vec![0x82],
        28 => vec![0xAC],
        29 => b"ab".to_vec(),
        30 => Vec::new(),
        31 => b"xyz".to_vec(),
        letter => vec![b'a' + letter as u8],
    }
}

/// Ids of letters.
pub fn ids(text: &str) -> Vec<TokenId> {
    text.bytes().map(|letter| TokenId(u32::from(letter - b'a'))).collect()
}

/// What went through the decoder.
#[derive(Debug, Default)]
pub struct Record {
    /// Each forward pass: of every sequence in it the first position and how many rows.
    pub passes: Vec<Vec<(usize, usize)>>,
    /// Each row: its token, and the hash of its whole prefix.
    pub rows: Vec<(TokenId, u64)>,
    pub logits_rows: usize,
    pub copied_pages: usize,
}

/// What the decoder is to be.
pub struct Fake {
    pub context_length: usize,
    pub page_count: usize,
    /// At position p this token is by far the most probable next one: `script[p + 1]`.
    pub script: Vec<TokenId>,
    pub panic_on: Option<TokenId>,
    pub refuse: Option<TokenId>,
    pub not_a_number_after: Option<TokenId>,
    /// A row of this token is damaged.
    pub damaged: Option<TokenId>,
    pub keeps_hidden: bool,
    /// A forward pass waits for one of these, as long as there is a sender.
    pub gate: Option<Receiver<()>>,
    /// Told before each forward pass.
    pub at_the_gate: Option<Sender<()>>,
    /// Closed when the engine drops its model; nothing is sent.
    #[expect(dead_code)]
    pub gone: Option<Sender<()>>,
    pub record: Arc<Mutex<Record>>,
}

/// The decoder with its arena.
struct Running {
    fake: Fake,
    cells: Vec<Cell>,
    /// Cells of the last pass.
    last: Vec<usize>,
}

/// One position of a page.
#[derive(Clone, Copy)]
struct Cell {
    key: u64,
    hidden: u64,
    position: usize,
    token: TokenId,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            context_length: 512,
            page_count: 256,
            script: Vec::new(),
            panic_on: None,
            refuse: None,
            not_a_number_after: None,
            damaged: None,
            keeps_hidden: true,
            gate: None,
            at_the_gate: None,
            gone: None,
            record: Arc::default(),
        }
    }
}

impl Fake {
    pub fn scripted(script: Vec<TokenId>) -> Self {
        Self { script, ..Self::default() }
    }

    pub fn hosted(self, name: &str, stop_ids: Vec<TokenId>) -> Hosted {
        Hosted {
            name: name.to_owned(),
            decoder: Box::new(Running::new(self)),
            tokens: Arc::new(token_bytes),
            stop_ids,
            adapters: vec![ADAPTER],
        }
    }

    /// An engine that hosts this model alone and checks its books after every step.
    pub fn engine(self, options: EngineOptions) -> Engine {
        self.try_engine(options).unwrap()
    }

    pub fn try_engine(self, options: EngineOptions) -> Result<Engine, EngineError> {
        let options = EngineOptions { check_every_step: true, ..options };
        Engine::start(vec![self.hosted(MODEL, Vec::new())], options)
    }
}

impl Running {
    fn new(fake: Fake) -> Self {
        let rubbish = |cell: usize| Cell {
            key: mix(cell as u64 ^ 0xdead),
            hidden: mix(cell as u64 ^ 0xbeef),
            position: 0,
            token: TokenId(0),
        };
        let cells = (0..fake.page_count * PAGE_POSITIONS).map(rubbish).collect();
        Self { fake, cells, last: Vec::new() }
    }

    fn place(table: &[PageId], position: usize) -> usize {
        table[position / PAGE_POSITIONS].0 as usize * PAGE_POSITIONS + position % PAGE_POSITIONS
    }

    fn logit(&self, cell: &Cell, id: usize) -> f32 {
        if self.fake.not_a_number_after == Some(cell.token) && id == 3 {
            return f32::NAN;
        }
        let noise = mix(cell.hidden ^ mix(id as u64)) >> 40;
        let scripted =
            self.fake.script.get(cell.position + 1).is_some_and(|next| next.index() == id);
        noise as f32 / (1u32 << 24) as f32 * 6.0 - 3.0 + if scripted { 40.0 } else { 0.0 }
    }
}

impl Decoder for Running {
    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn context_length(&self) -> usize {
        self.fake.context_length
    }

    fn page_count(&self) -> usize {
        self.fake.page_count
    }

    fn page_bytes(&self) -> usize {
        PAGE_POSITIONS * size_of::<Cell>()
    }

    fn keeps_hidden(&self) -> bool {
        self.fake.keeps_hidden
    }

    fn forward(&mut self, batch: &Batch<'_>) -> Result<Vec<usize>, ModelError> {
        if let Some(at_the_gate) = &self.fake.at_the_gate {
            let _ = at_the_gate.send(());
        }
        if let Some(gate) = &self.fake.gate {
            let _ = gate.recv();
        }
        self.fake.record.lock().unwrap().passes.push(runs(batch));
        self.last.clear();
        let mut bad: Vec<usize> = Vec::new();
        for (index, row) in batch.rows.iter().enumerate() {
            assert_ne!(
                self.fake.panic_on,
                Some(row.token),
                "a token that this decoder cannot stand"
            );
            if self.fake.refuse == Some(row.token) {
                let what = format!("row {index} is a token that this decoder refuses");
                return Err(ModelError::Unsupported { what });
            }
            let table = batch.tables[row.slot];
            let adapter = row.adapter.map_or(0, |adapter| u64::from(adapter.0) + 1);
            let key = mix(u64::from(row.token.0) << 32 ^ row.position as u64 ^ adapter << 20);
            let place = Self::place(table, row.position);
            self.cells[place] = Cell { key, hidden: 0, position: row.position, token: row.token };
            let keys = (0..=row.position).map(|at| self.cells[Self::place(table, at)].key);
            let hidden = keys.fold(1, |state, key| mix(state ^ key));
            self.cells[place].hidden = hidden;
            self.last.push(place);
            let behind = |bad: &usize| batch.rows[*bad].slot == row.slot;
            if self.fake.damaged == Some(row.token) || bad.iter().any(behind) {
                bad.push(index);
            }
            self.fake.record.lock().unwrap().rows.push((row.token, hidden));
        }
        Ok(bad)
    }

    fn logits(&mut self, wanted: &[HiddenAt], out: &mut [f32]) -> Result<(), ModelError> {
        assert_eq!(out.len(), wanted.len() * VOCAB);
        self.fake.record.lock().unwrap().logits_rows += wanted.len();
        for (at, row) in wanted.iter().zip(out.chunks_mut(VOCAB)) {
            let place = at.page.0 as usize * PAGE_POSITIONS + at.offset;
            assert!(self.fake.keeps_hidden || self.last.contains(&place), "a row long gone");
            let cell = self.cells[place];
            for (id, logit) in row.iter_mut().enumerate() {
                *logit = self.logit(&cell, id);
            }
        }
        Ok(())
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        let cell = |page: PageId| page.0 as usize * PAGE_POSITIONS;
        self.cells.copy_within(cell(from)..cell(from) + PAGE_POSITIONS, cell(to));
        self.fake.record.lock().unwrap().copied_pages += 1;
    }

    fn discard_page(&mut self, _: PageId) {}

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
}

/// Of every sequence in a batch the first position and how many rows.
fn runs(batch: &Batch<'_>) -> Vec<(usize, usize)> {
    let mut runs = vec![(0, 0); batch.tables.len()];
    for row in batch.rows {
        let (first, rows) = &mut runs[row.slot];
        if *rows == 0 {
            *first = row.position;
        }
        *rows += 1;
    }
    runs
}

/// splitmix64's finaliser.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Runs a future to its end.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
