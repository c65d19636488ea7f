//! Instructions as the data set words them: an official name and its arguments.

use super::super::forms::field;
use super::super::json::Json;
use super::{Amount, Instruction, Rule};

/// The instructions of a record: `instruction_id_list`, and `kwargs` with as many entries.
pub(in super::super) fn instructions(record: &Json) -> Result<Vec<Instruction>, String> {
    let list = |name: &str| {
        record.get(name).and_then(Json::list).ok_or_else(|| format!("it has no list `{name}`"))
    };
    let (names, arguments) = (list("instruction_id_list")?, list("kwargs")?);
    if names.is_empty() || names.len() != arguments.len() {
        return Err(format!("it has {} instructions and {} kwargs", names.len(), arguments.len()));
    }
    let read = |(name, arguments): (&Json, &Json)| {
        let id = name.text().ok_or("an instruction has no name")?.to_owned();
        let rule = rule(&id, arguments).map_err(|why| format!("{id}: {why}"))?;
        Ok(Instruction { id, rule })
    };
    names.iter().zip(arguments).map(read).collect()
}

fn rule(id: &str, arguments: &Json) -> Result<Rule, String> {
    let word = |name: &str| field(arguments, name);
    let count = |name: &str| {
        let whole = arguments.get(name).and_then(Json::whole);
        let whole = whole.and_then(|whole| usize::try_from(whole).ok());
        whole.ok_or_else(|| format!("its `{name}` is no count"))
    };
    let words = |name: &str| {
        let list = arguments.get(name).and_then(Json::list);
        let words: Option<Vec<String>> = list.map(|l| l.iter().filter_map(Json::word).collect());
        words.ok_or_else(|| format!("it has no list `{name}`"))
    };
    let amount = |relation: &str, number: &str| {
        let at_least = match word(relation)?.as_str() {
            "at least" => true,
            "less than" => false,
            other => return Err(format!("its `{relation}` is `{other}`")),
        };
        Ok(Amount { at_least, count: count(number)? })
    };
    Ok(match id {
        "change_case:capital_word_frequency" => {
            Rule::Capitals(amount("capital_relation", "capital_frequency")?)
        }
        "change_case:english_capital" => Rule::English { upper: true },
        "change_case:english_lowercase" => Rule::English { upper: false },
        "combination:repeat_prompt" => Rule::RepeatPrompt(word("prompt_to_repeat")?),
        "combination:two_responses" => Rule::TwoResponses,
        "detectable_content:number_placeholders" => Rule::Placeholders(count("num_placeholders")?),
        "detectable_content:postscript" => Rule::Postscript(word("postscript_marker")?),
        "detectable_format:constrained_response" => Rule::Constrained,
        "detectable_format:json_format" => Rule::Json,
        "detectable_format:multiple_sections" => {
            Rule::Sections { splitter: word("section_spliter")?, count: count("num_sections")? }
        }
        "detectable_format:number_bullet_lists" => Rule::Bullets(count("num_bullets")?),
        "detectable_format:number_highlighted_sections" => {
            Rule::Highlights(count("num_highlights")?)
        }
        "detectable_format:title" => Rule::Title,
        "keywords:existence" => Rule::Keywords(words("keywords")?),
        "keywords:forbidden_words" => Rule::Forbidden(words("forbidden_words")?),
        "keywords:frequency" => {
            Rule::Keyword { pattern: word("keyword")?, amount: amount("relation", "frequency")? }
        }
        "keywords:letter_frequency" => {
            let letter = word("letter")?.to_lowercase();
            let letter = letter.chars().next().ok_or("its `letter` is empty")?;
            Rule::Letter { letter, amount: amount("let_relation", "let_frequency")? }
        }
        "language:response_language" => Rule::Language(word("language")?),
        "length_constraints:nth_paragraph_first_word" => Rule::FirstWord {
            paragraphs: count("num_paragraphs")?,
            nth: count("nth_paragraph")?,
            word: word("first_word")?,
        },
        "length_constraints:number_paragraphs" => Rule::Paragraphs(count("num_paragraphs")?),
        "length_constraints:number_sentences" => {
            Rule::Sentences(amount("relation", "num_sentences")?)
        }
        "length_constraints:number_words" => Rule::Words(amount("relation", "num_words")?),
        "punctuation:no_comma" => Rule::NoComma,
        "startend:end_checker" => Rule::End(word("end_phrase")?),
        "startend:quotation" => Rule::Quotation,
        _ => return Err("it is none of the 25 instructions that are known".to_owned()),
    })
}
