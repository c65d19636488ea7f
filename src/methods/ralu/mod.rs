//! RaLU: reasoning as logic units (Reason from a program, align its units with the question, and
//! synthesise the answer from the units that stand).
//!
//! Three stages, a file each:
//! 1. `program`: the model writes a program; its control flow gives the logic units (or, for an
//!    ablation, `steps`: steps in words).
//! 2. `align`: the units are judged one by one in a live dialogue. A unit that is WRONG is taken back,
//!    its judgement with it, and the correction is said in its place (`verdict` reads the replies,
//!    `choice` picks among candidates when none passed).
//! 3. `synthesis`: the verified dialogue goes on, and the model writes the solution from it.
//!
//! `repair` measures the judge where the right answers are known (the paper's A.3).

mod align;
mod choice;
mod program;
pub mod repair;
mod steps;
mod synthesis;
mod verdict;

use async_trait::async_trait;

use crate::answer::Problem;

use super::solving::Solving;
use super::{Context, Failure, Judged, Method, Outcome};

pub(super) use program::first_syntax_error;
pub(super) use verdict::first_word;
pub use verdict::{Judgement, analysis_of, read_verdict, same_unit};

/// Most tokens of a program and of a judgement, where the user sets no limit. The paper sets none.
const PROGRAM_TOKENS: usize = 1024;
const VERDICT_TOKENS: usize = 512;

/// When a reply accepts a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// The verdict is OK, and there is no Fix or one equal to the unit (the paper).
    #[default]
    Both,
    /// The reply begins with "ok", or its Fix equals the unit (the released code).
    Either,
}

/// Which candidate is kept when none passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The one proposed with the highest confidence, Eq. 4 (the paper).
    #[default]
    Confidence,
    /// A draw, keyed by item, seed, sample and unit.
    Random,
    Last,
    /// The one proposed with the lowest exp(−mean log-probability). The paper writes the ablation with
    /// the mean of probabilities, which would rank as Eq. 4 does.
    Perplexity,
    /// The one that the model repeats when it is shown them all.
    SelfRank,
}

/// What the last stage sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synthesis {
    /// The verified dialogue goes on (the paper).
    #[default]
    Continue,
    /// A new dialogue is given the units and what was found about them (the released code).
    Rebuilt,
}

/// What is judged one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitKind {
    /// Logic units of the control-flow graph (the paper).
    #[default]
    Cfg,
    /// Every line that is not blank (the paper's line-by-line ablation).
    Line,
    /// Steps in words, without a program (the paper's ablation of the same name).
    NlStep,
}

/// RaLU's settings; the default is the paper's method.
#[derive(Clone, Debug, PartialEq)]
pub struct RaluOptions {
    /// Most judgements of one unit, the first included.
    pub max_candidates: u32,
    /// An OK must be more confident than this, 0..=100, or the unit is judged again.
    pub min_confidence: Option<f64>,
    pub accept: Accept,
    pub select: Selection,
    pub synthesis: Synthesis,
    pub units: UnitKind,
}

impl Default for RaluOptions {
    fn default() -> Self {
        Self {
            max_candidates: 3,
            min_confidence: None,
            accept: Accept::default(),
            select: Selection::default(),
            synthesis: Synthesis::default(),
            units: UnitKind::default(),
        }
    }
}

/// Reasoning as logic units.
#[derive(Clone, Debug, Default)]
pub struct Ralu {
    pub options: RaluOptions,
}

#[async_trait]
impl Method for Ralu {
    fn name(&self) -> String {
        let set = self.options.set();
        match set.len() {
            0 => "ralu".to_owned(),
            _ => format!("ralu[{}]", set.join(",")),
        }
    }

    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome {
        let mut solving = Solving::begin(self.name(), problem, context);
        let result = self.run(&mut solving).await;
        solving.end(result)
    }
}

impl Ralu {
    async fn run(&self, solving: &mut Solving<'_>) -> Result<String, Failure> {
        let kind = self.options.units;
        let units = match kind {
            UnitKind::NlStep => steps::write(solving).await?,
            UnitKind::Cfg | UnitKind::Line => program::write(solving, kind).await?,
        };
        let first_program = solving.program.clone();
        solving.judged = Some(Judged { first_program, units: units.len() as u32, wrong_units: 0 });
        let mut judge = align::open(solving, kind).await?;
        let result = self.judge_and_synthesise(solving, &mut judge, &units).await;
        solving.close(judge);
        result
    }

    async fn judge_and_synthesise(
        &self,
        solving: &mut Solving<'_>,
        judge: &mut super::turn::Talk,
        units: &[String],
    ) -> Result<String, Failure> {
        let settled = align::units(solving, judge, &self.options, units).await?;
        match self.options.synthesis {
            Synthesis::Continue => synthesis::go_on(solving, judge).await,
            Synthesis::Rebuilt => synthesis::rebuilt(solving, &settled).await,
        }
    }
}

impl RaluOptions {
    /// The settings that are not the paper's, as `name=value`, in a fixed order.
    fn set(&self) -> Vec<String> {
        let paper = Self::default();
        let mut set = Vec::new();
        if self.max_candidates != paper.max_candidates {
            set.push(format!("max-candidates={}", self.max_candidates));
        }
        if let Some(least) = self.min_confidence {
            set.push(format!("min-confidence={least}"));
        }
        if self.accept == Accept::Either {
            set.push("accept=code".to_owned());
        }
        match self.select {
            Selection::Confidence => {}
            Selection::Random => set.push("select=random".to_owned()),
            Selection::Last => set.push("select=last".to_owned()),
            Selection::Perplexity => set.push("select=perplexity".to_owned()),
            Selection::SelfRank => set.push("select=self-rank".to_owned()),
        }
        if self.synthesis == Synthesis::Rebuilt {
            set.push("synthesis=rebuilt".to_owned());
        }
        match self.units {
            UnitKind::Cfg => {}
            UnitKind::Line => set.push("units=line".to_owned()),
            UnitKind::NlStep => set.push("units=nl-step".to_owned()),
        }
        set
    }
}
