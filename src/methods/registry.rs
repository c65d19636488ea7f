//! The methods by their names, and their options by theirs.

use super::ralu::{Accept, Ralu, RaluOptions, Selection, Synthesis, UnitKind};
use super::self_debug::SelfDebugOptions;
use super::{Cot, Direct, Method, Pot, SelfDebug};

/// A method as `unsay methods` lists it.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct MethodInfo {
    pub name: &'static str,
    pub summary: &'static str,
    /// The paper that the method is from.
    pub source: &'static str,
    pub options: &'static [OptionInfo],
}

/// An option of a method.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct OptionInfo {
    pub name: &'static str,
    pub values: &'static str,
    pub default: &'static str,
    pub summary: &'static str,
}

/// Why a method could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error("there is no method `{name}`; `unsay methods` lists those there are ({known})")]
    Unknown { name: String, known: String },
    #[error("`{name}` is no method with options: write it as `name` or `name[option=value,…]`")]
    Form { name: String },
    #[error("the method {method} has no option `{option}`; {known}")]
    Option { method: &'static str, option: String, known: String },
    #[error("`{value}` is no value of the option {option} of {method}; it takes {values}")]
    Value { method: &'static str, option: &'static str, value: String, values: &'static str },
    #[error("the option {option} of {method} is given twice")]
    Twice { method: &'static str, option: &'static str },
}

const RALU_OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "max-candidates",
        values: "a whole number from 1 to 100",
        default: "3",
        summary: "most judgements of one unit, the first included (the released code: 4)",
    },
    OptionInfo {
        name: "min-confidence",
        values: "a number from 0 to 100, or off",
        default: "off",
        summary: "an OK must be more confident than this, or it does not pass (the released code: 51)",
    },
    OptionInfo {
        name: "accept",
        values: "paper or code",
        default: "paper",
        summary: "accept when the verdict is OK and the Fix agrees (paper), or when either holds (code)",
    },
    OptionInfo {
        name: "select",
        values: "confidence, perplexity, last, random or self-rank",
        default: "confidence",
        summary: "which candidate is kept when none passed",
    },
    OptionInfo {
        name: "synthesis",
        values: "continue or rebuilt",
        default: "continue",
        summary: "go on with the verified dialogue, or show its units to a new one",
    },
    OptionInfo {
        name: "units",
        values: "cfg, line or nl-step",
        default: "cfg",
        summary: "judge logic units of the control-flow graph, lines, or steps in words without a program",
    },
];

const SELF_DEBUG_OPTIONS: &[OptionInfo] = &[OptionInfo {
    name: "max-rounds",
    values: "a whole number from 1 to 100",
    default: "3",
    summary: "most explanations, each with its judgement",
}];

const METHODS: &[MethodInfo] = &[
    MethodInfo {
        name: "direct",
        summary: "asks for the answer alone",
        source: "baseline",
        options: &[],
    },
    MethodInfo {
        name: "cot",
        summary: "asks for the steps, then the answer (zero-shot chain of thought)",
        source: "Kojima et al. 2022, Large Language Models are Zero-Shot Reasoners",
        options: &[],
    },
    MethodInfo {
        name: "pot",
        summary: "writes a program, and answers with what it computes (program of thought, PAL)",
        source: "Gao et al. 2023, PAL; Chen et al. 2023, Program of Thoughts Prompting",
        options: &[],
    },
    MethodInfo {
        name: "self-debug",
        summary: "writes a program, explains it line by line and corrects it, without running it",
        source: "Chen et al. 2024, Teaching Large Language Models to Self-Debug (explanation feedback)",
        options: SELF_DEBUG_OPTIONS,
    },
    MethodInfo {
        name: "ralu",
        summary: "writes a program, judges and corrects its logic units one by one, answers from them",
        source: "Reasoning-as-Logic-Units (RaLU), 2025",
        options: RALU_OPTIONS,
    },
];

/// All methods.
pub fn list() -> &'static [MethodInfo] {
    METHODS
}

/// The method of that name, `ralu` or `ralu[accept=code,units=line]`, with further options as
/// (name, value).
pub fn by_name(name: &str, options: &[(String, String)]) -> Result<Box<dyn Method>, MethodError> {
    let (base, bracketed) = match name.split_once('[') {
        None => (name, ""),
        Some((base, rest)) => {
            let form = || MethodError::Form { name: name.to_owned() };
            (base, rest.strip_suffix(']').ok_or_else(form)?)
        }
    };
    let info = METHODS.iter().find(|m| m.name == base).ok_or_else(|| {
        let known: Vec<&str> = METHODS.iter().map(|m| m.name).collect();
        MethodError::Unknown { name: base.to_owned(), known: known.join(", ") }
    })?;
    let mut given: Vec<(&str, &str)> = Vec::new();
    for part in bracketed.split(',').filter(|part| !part.trim().is_empty()) {
        let form = || MethodError::Form { name: name.to_owned() };
        given.push(part.split_once('=').ok_or_else(form)?);
    }
    given.extend(options.iter().map(|(option, value)| (option.as_str(), value.as_str())));
    let given = known_options(info, &given)?;
    Ok(match info.name {
        "ralu" => Box::new(Ralu { options: ralu_options(&given)? }),
        "cot" => Box::new(Cot),
        "pot" => Box::new(Pot),
        "self-debug" => Box::new(SelfDebug { options: self_debug_options(&given)? }),
        _ => Box::new(Direct),
    })
}

/// The options as this method knows them, each at most once.
fn known_options<'v>(
    info: &'static MethodInfo,
    given: &[(&str, &'v str)],
) -> Result<Vec<(&'static OptionInfo, &'v str)>, MethodError> {
    let mut known: Vec<(&'static OptionInfo, &str)> = Vec::new();
    for (name, value) in given {
        let name = name.trim();
        let option = info.options.iter().find(|o| o.name == name).ok_or_else(|| {
            let names: Vec<&str> = info.options.iter().map(|o| o.name).collect();
            let known = match names.len() {
                0 => "it has none".to_owned(),
                _ => format!("it has: {}", names.join(", ")),
            };
            MethodError::Option { method: info.name, option: name.to_owned(), known }
        })?;
        if known.iter().any(|(o, _)| o.name == option.name) {
            return Err(MethodError::Twice { method: info.name, option: option.name });
        }
        known.push((option, value.trim()));
    }
    Ok(known)
}

fn self_debug_options(
    given: &[(&'static OptionInfo, &str)],
) -> Result<SelfDebugOptions, MethodError> {
    let mut options = SelfDebugOptions::default();
    for &(option, value) in given {
        let number = value.parse().ok().filter(|n| (1..=100).contains(n));
        options.max_rounds = number.ok_or_else(|| MethodError::Value {
            method: "self-debug",
            option: option.name,
            value: value.to_owned(),
            values: option.values,
        })?;
    }
    Ok(options)
}

fn ralu_options(given: &[(&'static OptionInfo, &str)]) -> Result<RaluOptions, MethodError> {
    let mut options = RaluOptions::default();
    for &(option, value) in given {
        let bad = || MethodError::Value {
            method: "ralu",
            option: option.name,
            value: value.to_owned(),
            values: option.values,
        };
        match (option.name, value) {
            ("max-candidates", _) => {
                let number = value.parse().ok().filter(|n| (1..=100).contains(n));
                options.max_candidates = number.ok_or_else(bad)?;
            }
            ("min-confidence", "off") => options.min_confidence = None,
            ("min-confidence", _) => {
                let number = value.parse().ok().filter(|n| (0.0..=100.0).contains(n));
                options.min_confidence = Some(number.ok_or_else(bad)?);
            }
            ("accept", "paper") => options.accept = Accept::Both,
            ("accept", "code") => options.accept = Accept::Either,
            ("select", "confidence") => options.select = Selection::Confidence,
            ("select", "perplexity") => options.select = Selection::Perplexity,
            ("select", "last") => options.select = Selection::Last,
            ("select", "random") => options.select = Selection::Random,
            ("select", "self-rank") => options.select = Selection::SelfRank,
            ("synthesis", "continue") => options.synthesis = Synthesis::Continue,
            ("synthesis", "rebuilt") => options.synthesis = Synthesis::Rebuilt,
            ("units", "cfg") => options.units = UnitKind::Cfg,
            ("units", "line") => options.units = UnitKind::Line,
            ("units", "nl-step") => options.units = UnitKind::NlStep,
            _ => return Err(bad()),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(name: &str) -> MethodError {
        by_name(name, &[]).err().expect("an error")
    }

    #[test]
    fn names_read_back_as_they_are_written() {
        for name in [
            "direct",
            "cot",
            "ralu",
            "ralu[max-candidates=4,min-confidence=51,accept=code]",
            "ralu[select=perplexity,synthesis=rebuilt,units=line]",
            "ralu[select=self-rank,units=nl-step]",
            "pot",
            "self-debug",
        ] {
            assert_eq!(by_name(name, &[]).unwrap().name(), name);
        }
        let given = [("units".to_owned(), "line".to_owned())];
        assert_eq!(
            by_name("ralu[accept=code]", &given).unwrap().name(),
            "ralu[accept=code,units=line]"
        );
        assert_eq!(by_name("ralu[accept=paper]", &[]).unwrap().name(), "ralu");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(failure("rahlu"), MethodError::Unknown { .. }));
        assert!(matches!(failure("ralu[accept=code"), MethodError::Form { .. }));
        assert!(matches!(failure("ralu[accept]"), MethodError::Form { .. }));
        assert!(matches!(failure("ralu[colour=red]"), MethodError::Option { .. }));
        assert!(matches!(failure("cot[units=line]"), MethodError::Option { .. }));
        for bad in ["max-candidates=0", "max-candidates=x", "min-confidence=NaN", "accept=no"] {
            assert!(matches!(failure(&format!("ralu[{bad}]")), MethodError::Value { .. }), "{bad}");
        }
        assert!(matches!(failure("ralu[units=line,units=cfg]"), MethodError::Twice { .. }));
    }

    #[test]
    fn the_defaults_of_the_list_are_the_defaults() {
        let options: Vec<(&'static OptionInfo, &str)> =
            RALU_OPTIONS.iter().map(|o| (o, o.default)).collect();
        assert_eq!(ralu_options(&options).unwrap(), RaluOptions::default());
        let options: Vec<(&'static OptionInfo, &str)> =
            SELF_DEBUG_OPTIONS.iter().map(|o| (o, o.default)).collect();
        assert_eq!(self_debug_options(&options).unwrap(), SelfDebugOptions::default());
    }
}
