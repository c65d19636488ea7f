//! Instructions out of records.

use super::super::Json;
use super::language::is_known;
use super::python::strip;
use super::{Bound, Demand, Instruction, Pattern};

/// The instructions of a record: `instruction_id_list`, and as many `kwargs`. Or what is wrong with it.
pub fn instructions(record: &Json) -> Result<Vec<Instruction>, String> {
    let list = |name: &str| {
        let values = record.get(name).and_then(Json::list);
        values.ok_or_else(|| format!("it has no list `{name}`"))
    };
    let (ids, kwargs) = (list("instruction_id_list")?, list("kwargs")?);
    if ids.is_empty() || ids.len() != kwargs.len() {
        return Err(format!("it has {} instructions and {} `kwargs`", ids.len(), kwargs.len()));
    }
    ids.iter().zip(kwargs).map(|(id, arguments)| instruction(id, arguments)).collect()
}

fn instruction(id: &Json, arguments: &Json) -> Result<Instruction, String> {
    let id = id.text().ok_or("an instruction's id is no text")?;
    let demand = demand(id, &Arguments(arguments)).map_err(|why| format!("{id}: {why}"))?;
    Ok(Instruction { id: id.to_owned(), demand })
}

fn demand(id: &str, given: &Arguments<'_>) -> Result<Demand, String> {
    Ok(match id {
        "keywords:existence" => {
            Demand::Keywords(given.patterns("keywords", |word| word.to_owned())?)
        }
        "keywords:frequency" => Demand::KeywordCount {
            keyword: Pattern::ignoring_case(strip(given.text("keyword")?))?,
            bound: given.bound("relation", "frequency")?,
        },
        "keywords:forbidden_words" => {
            Demand::Forbidden(given.patterns("forbidden_words", |word| format!(r"\b{word}\b"))?)
        }
        "keywords:letter_frequency" => Demand::LetterCount {
            letter: given.letter()?,
            bound: given.bound("let_relation", "let_frequency")?,
        },
        "language:response_language" => match given.text("language")? {
            code if is_known(code) => Demand::Language(code.to_owned()),
            code => return Err(format!("the language `{code}` is not known")),
        },
        "length_constraints:number_sentences" => {
            Demand::Sentences(given.bound("relation", "num_sentences")?)
        }
        "length_constraints:number_paragraphs" => {
            Demand::Paragraphs(given.count("num_paragraphs")?)
        }
        "length_constraints:number_words" => Demand::Words(given.bound("relation", "num_words")?),
        "length_constraints:nth_paragraph_first_word" => {
            let (paragraphs, nth) = (given.count("num_paragraphs")?, given.count("nth_paragraph")?);
            if nth == 0 || nth > paragraphs {
                return Err(format!("there is no paragraph {nth} of {paragraphs}"));
            }
            Demand::FirstWord { paragraphs, nth, word: given.text("first_word")?.to_lowercase() }
        }
        "detectable_content:number_placeholders" => {
            Demand::Placeholders(given.count("num_placeholders")?)
        }
        "detectable_content:postscript" => {
            Demand::Postscript(match strip(given.text("postscript_marker")?) {
                "P.P.S" => Pattern::by_line(r"\s*p\.\s?p\.\s?s.*$")?,
                "P.S." => Pattern::by_line(r"\s*p\.\s?s\..*$")?,
                other => Pattern::by_line(&format!(r"\s*{}.*$", other.to_lowercase()))?,
            })
        }
        "detectable_format:number_bullet_lists" => Demand::Bullets(given.count("num_bullets")?),
        "detectable_format:constrained_response" => Demand::Constrained,
        "detectable_format:number_highlighted_sections" => {
            Demand::Highlights(given.count("num_highlights")?)
        }
        "detectable_format:multiple_sections" => {
            let word = strip(given.text("section_spliter")?);
            let opening = Pattern::plain(&format!(r"\s?{word}\s?\d+\s?"))?;
            Demand::Sections { opening, count: given.count("num_sections")? }
        }
        "detectable_format:json_format" => Demand::Json,
        "detectable_format:title" => Demand::Title,
        "combination:two_responses" => Demand::TwoResponses,
        "combination:repeat_prompt" => {
            Demand::Repeat(strip(given.text("prompt_to_repeat")?).to_lowercase())
        }
        "startend:end_checker" => Demand::End(strip(given.text("end_phrase")?).to_lowercase()),
        "startend:quotation" => Demand::Quoted,
        "change_case:capital_word_frequency" => {
            Demand::CapitalWords(given.bound("capital_relation", "capital_frequency")?)
        }
        "change_case:english_capital" => Demand::EnglishUpper,
        "change_case:english_lowercase" => Demand::EnglishLower,
        "punctuation:no_comma" => Demand::NoComma,
        _ => return Err("no instruction of this kind is known".to_owned()),
    })
}

/// The arguments of one instruction.
struct Arguments<'j>(&'j Json);

impl<'j> Arguments<'j> {
    fn value(&self, name: &str) -> Result<&'j Json, String> {
        let value = self.0.get(name).filter(|value| **value != Json::Null);
        value.ok_or_else(|| format!("it has no `{name}`"))
    }

    /// A text that says something.
    fn text(&self, name: &str) -> Result<&'j str, String> {
        let text = self.value(name)?.text().filter(|text| !strip(text).is_empty());
        text.ok_or_else(|| format!("its `{name}` is no text"))
    }

    fn count(&self, name: &str) -> Result<usize, String> {
        let count = self.value(name)?.whole().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| format!("its `{name}` is no count"))
    }

    fn bound(&self, relation: &str, count: &str) -> Result<Bound, String> {
        let limit = self.count(count)?;
        match self.text(relation)? {
            "less than" => Ok(Bound::Below(limit)),
            "at least" => Ok(Bound::From(limit)),
            other => Err(format!("its `{relation}` is `{other}`, not `less than` or `at least`")),
        }
    }

    fn letter(&self) -> Result<char, String> {
        let text = strip(self.text("letter")?).to_lowercase();
        let mut signs = text.chars();
        match (signs.next(), signs.next()) {
            (Some(letter), None) => Ok(letter),
            _ => Err("its `letter` is not one sign".to_owned()),
        }
    }

    /// A list of regexes, each made of what is given.
    fn patterns(&self, name: &str, made: impl Fn(&str) -> String) -> Result<Vec<Pattern>, String> {
        let words = self.value(name)?.list().filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| format!("its `{name}` is no list"))?;
        let pattern = |word: &Json| {
            let word = word.text().ok_or_else(|| format!("its `{name}` holds more than texts"))?;
            Pattern::ignoring_case(&made(word))
        };
        words.iter().map(pattern).collect()
    }
}
