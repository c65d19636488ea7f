//! The budget of memory over all models of an engine: what each takes, what is left for pages, and
//! whether it fits, all before anything is loaded.
//!
//! Pages of all models share one sum of bytes. Each model addresses it through an arena of its own,
//! whose memory is taken as pages are first written and given back as they are discarded; so memory
//! moves between models page by page, and an arena has as many pages as the whole sum would hold.

mod machine;
mod size;

use std::fmt;

use super::step::LOGITS_ROWS;
use crate::device::{KvType, PAGE_POSITIONS};
use crate::model::{Footprint, Quantised};
pub use machine::Machine;
pub use size::{MemorySize, SizeError};
use size::{grouped, mebibytes};

/// Dialogues of full length for each model that pages suffice for, where memory does. They need not
/// be written, and what is not written takes no memory.
pub const FULL_DIALOGUES: usize = 3;

/// Fewest positions that each model must have pages for (or its context, where that is shorter).
pub const LEAST_POSITIONS: usize = 256;

/// What the process takes beside its models: its code, stacks of threads, the runtime, buffers of
/// requests. A stated allowance, measured at 8 to 10 MiB beside the default model.
pub const PROCESS_BYTES: u64 = 12 << 20;

/// Bytes of the sampler's work space for each token of a vocabulary: two f64 and two ids.
const SAMPLER_BYTES: usize = 24;

/// Logits that the engine holds at once, of one model at a time, and the sampler's work space.
fn logits_bytes(demands: &[Demand]) -> u64 {
    let vocab = demands.iter().map(|demand| demand.footprint.vocab).max().unwrap_or(0);
    vocab.saturating_mul(4 * LOGITS_ROWS + SAMPLER_BYTES) as u64
}

/// What stays for others of the memory that is there: one part in sixteen, and no less than 64 MiB.
fn reserve(free: u64) -> u64 {
    (free / 16).max(64 << 20)
}

/// A model that is to be hosted.
#[derive(Clone, Debug)]
pub struct Demand {
    pub name: String,
    pub footprint: Footprint,
    pub kv: KvType,
    /// The user asked for this context: a shorter one will not do.
    pub context_is_wanted: bool,
    /// Bytes that live beside the decoder: the tokenizer, the template.
    pub beside: u64,
}

/// What the user bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// For the whole process; None: what the machine can spare.
    pub memory: Option<MemorySize>,
    /// For the pages of all models together; None: [`FULL_DIALOGUES`] of each model, as far as they
    /// fit.
    pub page_memory: Option<MemorySize>,
}

/// Where the limit of a plan comes from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Limit {
    /// The user's word.
    Given { bytes: u64 },
    /// What is left on the machine or in a control group, less a reserve for others.
    Left { bytes: u64, machine: Machine, reserve: u64 },
}

impl Limit {
    /// Most bytes of the whole process.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Given { bytes } | Self::Left { bytes, .. } => *bytes,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given { bytes } => write!(f, "{} MiB given", mebibytes(*bytes)),
            Self::Left { bytes, machine, reserve } => {
                write!(f, "{} MiB available (", mebibytes(*bytes))?;
                let (free, reserve) = (mebibytes(machine.free), mebibytes(*reserve));
                match &machine.group {
                    None => write!(f, "{free} free, ")?,
                    Some(group) => write!(f, "{free} left of {}, ", group.display())?,
                }
                write!(f, "{reserve} kept for others)")
            }
        }
    }
}

/// Bytes of a process by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Parts {
    /// Weights in memory of the device's own.
    pub held_weights: u64,
    /// Weights that are used where they lie in the mapped file.
    pub mapped_weights: u64,
    /// Adapters that are held apart.
    pub adapters: u64,
    /// Tables of rotations.
    pub rope: u64,
    /// Buffers of a forward pass.
    pub work: u64,
    /// Tokenizer and template.
    pub tokenizer: u64,
}

impl Parts {
    fn of(demand: &Demand) -> Self {
        Self {
            held_weights: demand.footprint.held_weights,
            mapped_weights: demand.footprint.mapped_weights,
            adapters: demand.footprint.adapters,
            rope: demand.footprint.rope,
            work: demand.footprint.work,
            tokenizer: demand.beside,
        }
    }

    /// Name and bytes of each part, in the order of tables.
    fn lines(&self) -> [(&'static str, u64); 6] {
        [
            ("weights", self.held_weights),
            ("weights in the mapped file", self.mapped_weights),
            ("adapters", self.adapters),
            ("tables of rotations", self.rope),
            ("work buffers", self.work),
            ("tokenizer", self.tokenizer),
        ]
    }

    fn sum(&self) -> u64 {
        self.lines().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn weights(&self) -> u64 {
        self.held_weights.saturating_add(self.mapped_weights).saturating_add(self.adapters)
    }
}

/// A model's part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PlannedModel {
    pub name: String,
    pub parts: Parts,
    pub page_bytes: u64,
    /// Pages that the shared sum would hold if this model had all of it.
    pub page_count: usize,
    /// Most positions of a sequence: what the user or the model says, or what the pages hold.
    pub context: usize,
    /// What was quantised at load.
    pub quantised: Quantised,
}

/// The memory of an engine with all its models.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    pub models: Vec<PlannedModel>,
    /// Bytes of the pages of all models together, when all are written.
    pub page_memory: u64,
    /// Logits and the sampler's work space.
    pub logits: u64,
    /// [`PROCESS_BYTES`].
    pub process: u64,
    /// The sum of everything: the most memory that the process will hold.
    pub total: u64,
    pub limit: Limit,
}

/// Why models cannot be hosted within a budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("no model was given; name at least one")]
    NoModels,
    #[error(
        "a budget of {asked} is more than there is: this machine (or the control group of the process) \
         has {most}; give at most that"
    )]
    BeyondMachine { asked: MemorySize, most: MemorySize },
    #[error(
        "the system does not say how much memory there is; say how much may be used (--memory)"
    )]
    UnknownMemory,
    #[error(
        "{needed} MiB are needed before any page, and the limit is {limit}: {sums}; ways out: {ways}",
        needed = mebibytes(*.needed)
    )]
    WeightsDoNotFit { needed: u64, limit: Box<Limit>, sums: String, ways: String },
    #[error(
        "pages for {positions} positions of each model need {needed} MiB and {left} MiB are left of \
         {limit}: {sums}; ways out: {ways}",
        needed = mebibytes(*.needed), left = mebibytes(*.left)
    )]
    PagesDoNotFit {
        positions: usize,
        needed: u64,
        left: u64,
        limit: Box<Limit>,
        sums: String,
        ways: String,
    },
    #[error(
        "{asked} are asked for pages and {left} MiB are left of {limit}: {sums}; ways out: fewer bytes \
         for pages (--pages-memory), more in all (--memory), a smaller quantisation, or fewer models",
        left = mebibytes(*.left)
    )]
    PageMemoryDoesNotFit { asked: MemorySize, left: u64, limit: Box<Limit>, sums: String },
    #[error(
        "a context of {context} positions is asked for {model:?}, and the {pages} MiB for pages hold \
         {holds} of its positions; ways out: {ways}",
        pages = mebibytes(*.page_memory)
    )]
    ContextDoesNotFit {
        model: String,
        context: usize,
        holds: usize,
        page_memory: u64,
        ways: String,
    },
}

impl Plan {
    /// Adds up what the models take, and gives what is left to pages.
    pub fn of(
        demands: &[Demand],
        budget: &Budget,
        machine: Option<&Machine>,
    ) -> Result<Self, PlanError> {
        if demands.is_empty() {
            return Err(PlanError::NoModels);
        }
        let limit = limit(budget, machine)?;
        let logits = logits_bytes(demands);
        let shared = PROCESS_BYTES.saturating_add(logits);
        let page_memory = page_memory(demands, budget, &limit, shared)?;
        let models = demands
            .iter()
            .map(|demand| planned(demand, page_memory, demands))
            .collect::<Result<Vec<_>, _>>()?;
        let total = models.iter().fold(shared + page_memory, |sum, model| sum + model.parts.sum());
        Ok(Self { models, page_memory, logits, process: PROCESS_BYTES, total, limit })
    }

    /// All parts of all models.
    fn parts(&self) -> Parts {
        let mut sum = Parts::default();
        for Parts { held_weights, mapped_weights, adapters, rope, work, tokenizer } in
            self.models.iter().map(|model| model.parts)
        {
            sum.held_weights += held_weights;
            sum.mapped_weights += mapped_weights;
            sum.adapters += adapters;
            sum.rope += rope;
            sum.work += work;
            sum.tokenizer += tokenizer;
        }
        sum
    }

    /// What a user should know of how the weights are held, one line a model.
    pub fn notes(&self) -> Vec<String> {
        let note = |model: &PlannedModel| {
            let line = model.quantised.line()?;
            Some(if self.models.len() > 1 { format!("{}: {line}", model.name) } else { line })
        };
        self.models.iter().filter_map(note).collect()
    }

    /// The plan in one line.
    pub fn line(&self) -> String {
        let parts = self.parts();
        let beside = parts.sum() - parts.weights() + self.logits + self.process;
        let contexts: Vec<String> =
            self.models.iter().map(|model| grouped(model.context as u64)).collect();
        format!(
            "weights {} + buffers {} + pages {} = {} MiB of {}; context {}",
            mebibytes(parts.weights()),
            mebibytes(beside),
            mebibytes(self.page_memory),
            mebibytes(self.total),
            self.limit,
            contexts.join(" and ")
        )
    }
}

/// What can make everything but pages fit.
fn ways_to_load(demands: &[Demand]) -> String {
    let mut ways = vec!["more memory (--memory)", "a smaller quantisation"];
    if demands.len() > 1 {
        ways.push("fewer models");
    }
    ways.join(", ")
}

/// What can make pages fit.
fn ways_to_pages(demands: &[Demand]) -> String {
    let mut ways = vec!["a smaller context (--context)"];
    if demands.iter().any(|demand| demand.kv == KvType::F32) {
        ways.push("keys and values in f16 (--kv f16)");
    }
    ways.push("more memory (--memory, --pages-memory)");
    ways.push("a smaller quantisation");
    if demands.len() > 1 {
        ways.push("fewer models");
    }
    ways.join(", ")
}

fn limit(budget: &Budget, machine: Option<&Machine>) -> Result<Limit, PlanError> {
    match (budget.memory, machine) {
        (Some(asked), Some(machine)) if asked.0 > machine.total => {
            Err(PlanError::BeyondMachine { asked, most: MemorySize(machine.total) })
        }
        (Some(asked), _) => Ok(Limit::Given { bytes: asked.0 }),
        (None, None) => Err(PlanError::UnknownMemory),
        (None, Some(machine)) => {
            let reserve = reserve(machine.free);
            let bytes = machine.free.saturating_sub(reserve);
            Ok(Limit::Left { bytes, machine: machine.clone(), reserve })
        }
    }
}

/// Bytes for the pages of all models: what is asked for, or wanted and left behind everything else.
fn page_memory(
    demands: &[Demand],
    budget: &Budget,
    limit: &Limit,
    shared: u64,
) -> Result<u64, PlanError> {
    let whole: Vec<Parts> = demands.iter().map(Parts::of).collect();
    let needed = whole.iter().fold(shared, |sum, parts| sum.saturating_add(parts.sum()));
    let (sums, bound) = (|| sums(&whole, demands), || Box::new(limit.clone()));
    let Some(left) = limit.bytes().checked_sub(needed) else {
        let ways = ways_to_load(demands);
        return Err(PlanError::WeightsDoNotFit { needed, limit: bound(), sums: sums(), ways });
    };
    let page_memory = match budget.page_memory {
        Some(asked) if asked.0 > left => {
            let (limit, sums) = (bound(), sums());
            return Err(PlanError::PageMemoryDoesNotFit { asked, left, limit, sums });
        }
        Some(asked) => asked.0,
        None => pages_for(demands, FULL_DIALOGUES, usize::MAX).min(left),
    };
    let least = pages_for(demands, 1, LEAST_POSITIONS);
    if least > page_memory {
        return Err(PlanError::PagesDoNotFit {
            positions: LEAST_POSITIONS,
            needed: least,
            left: page_memory,
            limit: bound(),
            sums: sums(),
            ways: ways_to_pages(demands),
        });
    }
    Ok(page_memory)
}

/// Bytes of pages for `dialogues` of each model, of `positions` each or of its context.
fn pages_for(demands: &[Demand], dialogues: usize, positions: usize) -> u64 {
    demands.iter().fold(0, |sum: u64, Demand { footprint, .. }| {
        let pages = footprint.context.min(positions).div_ceil(PAGE_POSITIONS);
        let bytes = footprint.page_bytes.saturating_mul(pages as u64);
        sum.saturating_add(bytes.saturating_mul(dialogues as u64))
    })
}

fn planned(
    demand: &Demand,
    page_memory: u64,
    demands: &[Demand],
) -> Result<PlannedModel, PlanError> {
    let Demand { name, footprint, .. } = demand;
    let pages = (page_memory / footprint.page_bytes.max(1)).min(u64::from(u32::MAX)) as usize;
    let holds = pages.saturating_mul(PAGE_POSITIONS);
    if demand.context_is_wanted && holds < footprint.context {
        return Err(PlanError::ContextDoesNotFit {
            model: name.clone(),
            context: footprint.context,
            holds,
            page_memory,
            ways: ways_to_pages(demands),
        });
    }
    let footprint = footprint.with_pages(pages);
    Ok(PlannedModel {
        name: name.clone(),
        parts: Parts::of(&Demand { footprint, ..demand.clone() }),
        page_bytes: footprint.page_bytes,
        page_count: pages,
        context: footprint.context.min(holds),
        quantised: footprint.quantised,
    })
}

/// The sums of a plan that does not fit, model by model.
fn sums(parts: &[Parts], demands: &[Demand]) -> String {
    let each = parts.iter().zip(demands).map(|(parts, demand)| {
        let (all, weights) = (parts.sum(), parts.weights());
        format!(
            "{} {} (weights {}, buffers {})",
            demand.name,
            mebibytes(all),
            mebibytes(weights),
            mebibytes(all - weights)
        )
    });
    let shared = PROCESS_BYTES.saturating_add(logits_bytes(demands));
    each.chain([format!("process with logits {}", mebibytes(shared))])
        .collect::<Vec<_>>()
        .join(" + ")
}

impl fmt::Display for Plan {
    /// A table in MiB: a column a model, and their sums.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.parts();
        let several = self.models.len() > 1;
        let names = self.models.iter().map(|model| model.name.clone());
        let mut rows = vec![row("memory in MiB", names, several.then(|| "all".to_owned()))];
        for (index, (what, sum)) in sums.lines().into_iter().enumerate() {
            if sum > 0 {
                let each = self.models.iter().map(|model| mebibytes(model.parts.lines()[index].1));
                rows.push(row(what, each, several.then(|| mebibytes(sum))));
            }
        }
        let shared = |what, bytes| {
            let bytes = mebibytes(bytes);
            match several {
                true => row(what, self.models.iter().map(|_| String::new()), Some(bytes)),
                false => row(what, std::iter::once(bytes), None),
            }
        };
        let pages = if several { "pages, shared" } else { "pages" };
        rows.push(shared(pages, self.page_memory));
        if self.logits > 0 {
            rows.push(shared("logits and sampler", self.logits));
        }
        rows.push(shared("the process itself", self.process));
        rows.push(shared("sum", self.total));
        let positions = |m: &PlannedModel| grouped((m.page_count * PAGE_POSITIONS) as u64);
        let held = self.models.iter().map(positions);
        rows.push(row("positions that pages hold", held, several.then(String::new)));
        let contexts = self.models.iter().map(|model| grouped(model.context as u64));
        rows.push(row("context", contexts, several.then(String::new)));
        write_table(f, &rows)?;
        write!(f, "limit: {}", self.limit)
    }
}

fn row(what: &str, cells: impl Iterator<Item = String>, last: Option<String>) -> Vec<String> {
    std::iter::once(what.to_owned()).chain(cells).chain(last).collect()
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A model of 100 MiB whose pages take 1 MiB, with nothing beside it but a table of rotations of
    /// 1 KiB a position.
    fn demand(name: &str, context: usize) -> Demand {
        let footprint = Footprint {
            held_weights: 100 * MIB,
            mapped_weights: 0,
            adapters: 0,
            quantised: Quantised::default(),
            rope: 0,
            work: 0,
            page_bytes: MIB,
            context,
            vocab: 0,
            rope_position: 1024,
        };
        Demand {
            name: name.into(),
            kv: KvType::F16,
            footprint: footprint.with_pages(usize::MAX),
            context_is_wanted: false,
            beside: 0,
        }
    }

    fn plan(demands: &[Demand], memory: u64, page_memory: Option<u64>) -> Result<Plan, PlanError> {
        let size = |mib| MemorySize(mib * MIB);
        let budget = Budget { memory: Some(size(memory)), page_memory: page_memory.map(size) };
        Plan::of(demands, &budget, None)
    }

    #[test]
    fn pages_get_three_contexts_where_there_is_room() {
        let roomy = plan(&[demand("a", 1024)], 1000, None).unwrap();
        assert_eq!(roomy.page_memory, 3 * 64 * MIB);
        assert_eq!(roomy.total, (100 + 1 + 3 * 64) * MIB + PROCESS_BYTES);
        assert_eq!((roomy.models[0].page_count, roomy.models[0].context), (3 * 64, 1024));
        // Two models share their sum, and each can address all of it.
        let two = plan(&[demand("a", 1024), demand("b", 512)], 1000, None).unwrap();
        assert_eq!(two.page_memory, 3 * (64 + 32) * MIB);
        assert!(two.models.iter().all(|model| model.page_count == 3 * (64 + 32)));
    }

    #[test]
    fn where_room_is_short_pages_take_what_is_left_and_bound_the_context() {
        let fixed = 101 + PROCESS_BYTES / MIB;
        let short = plan(&[demand("a", 1024)], fixed + 40, None).unwrap();
        assert_eq!(short.page_memory, 40 * MIB);
        assert_eq!(short.models[0].context, 640);
        // The table of rotations is as short as the context.
        assert_eq!(short.models[0].parts.rope, 640 * 1024);
        assert!(short.total <= short.limit.bytes());
        let wanted = Demand { context_is_wanted: true, ..demand("a", 1024) };
        let refused = plan(&[wanted], fixed + 40, None).unwrap_err();
        let PlanError::ContextDoesNotFit { context: 1024, holds: 640, .. } = refused else {
            panic!("{refused}")
        };
        assert!(!refused.to_string().contains("f16"), "it is f16 already: {refused}");
        let wide = Demand { context_is_wanted: true, kv: KvType::F32, ..demand("a", 1024) };
        let refused = plan(&[wide], fixed + 40, None).unwrap_err();
        assert!(refused.to_string().contains("--kv f16"), "{refused}");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_sums_and_the_ways_out() {
        let two = [demand("writer", 1024), demand("judge", 1024)];
        let refused = plan(&two, 200, None).unwrap_err();
        let words = refused.to_string();
        assert!(matches!(refused, PlanError::WeightsDoNotFit { .. }), "{words}");
        for word in ["214 MiB", "200 MiB given", "writer 101", "judge 101", "fewer models"] {
            assert!(words.contains(word), "{word}: {words}");
        }
        // 16 pages each are the least.
        let fixed = 202 + PROCESS_BYTES / MIB;
        assert!(plan(&two, fixed + 32, None).is_ok());
        let refused = plan(&two, fixed + 31, None).unwrap_err();
        assert!(
            matches!(refused, PlanError::PagesDoNotFit { positions: 256, needed, left, .. }
                if needed == 32 * MIB && left == 31 * MIB),
            "{refused}"
        );
        assert!(plan(&two, 1000, Some(31)).is_err());
        let refused = plan(&two, fixed + 50, Some(51)).unwrap_err();
        assert!(refused.to_string().contains("51 MiB are asked for pages and 50 MiB"), "{refused}");
        assert_eq!(plan(&two, fixed + 50, Some(50)).unwrap().page_memory, 50 * MIB);
        // A context shorter than the least needs no more than its own.
        assert!(plan(&[demand("a", 16)], 101 + PROCESS_BYTES / MIB + 1, None).is_ok());
        assert_eq!(Plan::of(&[], &Budget::default(), None), Err(PlanError::NoModels));
    }

    #[test]
    fn the_machine_bounds_what_is_asked_and_what_is_taken() {
        let machine = Machine { total: 1000 * MIB, free: 640 * MIB, group: None };
        let (one, none) = ([demand("a", 1024)], Budget::default());
        let plan = Plan::of(&one, &none, Some(&machine)).unwrap();
        assert_eq!(plan.limit.bytes(), (640 - 64) * MIB);
        let asked = |mib| Budget { memory: Some(MemorySize(mib * MIB)), page_memory: None };
        assert!(Plan::of(&one, &asked(1000), Some(&machine)).is_ok());
        let refused = Plan::of(&one, &asked(1001), Some(&machine)).unwrap_err();
        assert!(refused.to_string().contains("1,001 MiB"), "{refused}");
        assert!(refused.to_string().contains("1,000 MiB"), "{refused}");
        assert_eq!(Plan::of(&one, &none, None), Err(PlanError::UnknownMemory));
        let full = Machine { free: 10 * MIB, ..machine };
        assert!(matches!(
            Plan::of(&one, &none, Some(&full)),
            Err(PlanError::WeightsDoNotFit { .. })
        ));
    }

    #[test]
    fn sizes_beyond_all_measure_are_refused_without_overflow() {
        let mut giant = demand("a", 1 << 28);
        giant.footprint.held_weights = u64::MAX;
        assert!(plan(&[giant.clone(), giant], 1000, None).is_err());
        let mut wide = demand("a", 1 << 28);
        wide.footprint.page_bytes = u64::MAX / 2;
        wide.footprint.rope = 0;
        assert!(matches!(plan(&[wide], 1000, None), Err(PlanError::PagesDoNotFit { .. })));
    }

    #[test]
    fn a_plan_is_a_table_and_a_line() {
        let two = plan(&[demand("writer", 1024), demand("judge", 512)], 1000, None).unwrap();
        let expected = "\
memory in MiB              writer  judge  all
weights                       100    100  200
tables of rotations           1.0    0.5  1.5
pages, shared                             288
the process itself                         12
sum                                       502
positions that pages hold   4,608  4,608
context                     1,024    512
limit: 1,000 MiB given";
        assert_eq!(two.to_string(), expected);
        assert_eq!(
            two.line(),
            "weights 200 + buffers 14 + pages 288 = 502 MiB of 1,000 MiB given; context 1,024 and 512"
        );
        let one = plan(&[demand("writer", 1024)], 1000, None).unwrap();
        assert!(one.to_string().starts_with("memory in MiB              writer\nweights"));
    }
}
