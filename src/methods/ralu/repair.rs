//! Whether repair pays (RaLU, appendix A.3): what a judge is worth, measured on questions whose right
//! answers are known.
//!
//! With p the share of right first programs, α the judge's accuracy on right ones and β on wrong ones, a
//! program that was judged WRONG is right all the same with probability
//! `(1−α)p / ((1−α)p + β(1−p))`. Correcting pays where γ, the share of right answers among those that
//! were judged WRONG and corrected, is greater.

use serde::Serialize;

/// What is known of one question behind a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgment {
    /// The first program, as it was written, gives the right answer.
    pub program_right: bool,
    /// Some unit's first judgement was WRONG.
    pub judged_wrong: bool,
    /// The answer at the end is right.
    pub answer_right: bool,
}

/// The judge's measures; `None` where there was nothing to measure them on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repair {
    pub questions: usize,
    /// Accuracy on right programs: no unit judged WRONG.
    pub alpha: Option<f64>,
    /// Accuracy on wrong programs: some unit judged WRONG.
    pub beta: Option<f64>,
    /// Share of right first programs.
    pub p: Option<f64>,
    /// Share of right answers among those with a unit judged WRONG (the paper's γ_repair).
    pub gamma: Option<f64>,
    /// Share of right first programs among those with a unit judged WRONG: what would be right without
    /// correcting.
    pub right_all_the_same: Option<f64>,
}

impl Repair {
    /// The measures of a run.
    pub fn of(judgments: &[Judgment]) -> Self {
        let share = |among: &dyn Fn(&Judgment) -> bool, is: &dyn Fn(&Judgment) -> bool| {
            let of: Vec<&Judgment> = judgments.iter().filter(|j| among(j)).collect();
            let met = of.iter().filter(|j| is(j)).count();
            (!of.is_empty()).then(|| met as f64 / of.len() as f64)
        };
        Self {
            questions: judgments.len(),
            alpha: share(&|j| j.program_right, &|j| !j.judged_wrong),
            beta: share(&|j| !j.program_right, &|j| j.judged_wrong),
            p: share(&|_| true, &|j| j.program_right),
            gamma: share(&|j| j.judged_wrong, &|j| j.answer_right),
            right_all_the_same: share(&|j| j.judged_wrong, &|j| j.program_right),
        }
    }

    /// Whether correcting what was judged WRONG gave more right answers than leaving it would have.
    pub fn pays(&self) -> Option<bool> {
        Some(self.gamma? > self.right_all_the_same?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Judgment, Repair};

    fn judgments(counts: &[(usize, [bool; 3])]) -> Vec<Judgment> {
        let each = |&(count, [program_right, judged_wrong, answer_right]): &(usize, [bool; 3])| {
            vec![Judgment { program_right, judged_wrong, answer_right }; count]
        };
        counts.iter().flat_map(each).collect()
    }

    #[test]
    fn the_measures_are_those_of_the_paper() {
        // 10 right programs, 2 of them judged WRONG; 10 wrong ones, 6 of them judged WRONG.
        let repair = Repair::of(&judgments(&[
            (8, [true, false, true]),
            (1, [true, true, true]),
            (1, [true, true, false]),
            (4, [false, false, false]),
            (4, [false, true, true]),
            (2, [false, true, false]),
        ]));
        assert_eq!((repair.alpha, repair.beta, repair.p), (Some(0.8), Some(0.6), Some(0.5)));
        assert_eq!(repair.gamma, Some(5.0 / 8.0));
        // (1 − α) p / ((1 − α) p + β (1 − p)) = 0.1 / (0.1 + 0.3)
        assert_eq!(repair.right_all_the_same, Some(0.25));
        assert_eq!(repair.pays(), Some(true));
    }

    #[test]
    fn a_judge_that_spoils_right_programs_does_not_pay() {
        let repair = Repair::of(&judgments(&[
            (3, [true, true, false]),
            (1, [true, true, true]),
            (1, [false, true, true]),
        ]));
        assert_eq!((repair.alpha, repair.beta), (Some(0.0), Some(1.0)));
        assert_eq!((repair.gamma, repair.right_all_the_same), (Some(0.4), Some(0.8)));
        assert_eq!(repair.pays(), Some(false));
    }

    #[test]
    fn what_was_not_met_is_not_measured() {
        let repair = Repair::of(&judgments(&[(2, [true, false, true])]));
        assert_eq!((repair.alpha, repair.beta, repair.gamma), (Some(1.0), None, None));
        assert_eq!(repair.pays(), None);
        assert_eq!(Repair::of(&[]).p, None);
    }
}
