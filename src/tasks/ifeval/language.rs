//! Which language a text is in, by the two-letter codes of the data set.

use whatlang::{Lang, detect};

/// Frequent small words of languages that the detector's tables lack.
const SMALL_WORDS: [(&str, &[&str]); 1] = [(
    "sw",
    &[
        "na", "ya", "wa", "kwa", "ni", "katika", "la", "za", "cha", "vya", "hii", "huo", "yake",
        "kama", "au", "pia", "ambayo", "kuwa", "sana", "yako", "wako", "hiyo", "mimi", "wewe",
        "lakini", "bila",
    ],
)];

/// Whether a text is in a language. None: it has too little to say.
pub fn is(text: &str, code: &str) -> Option<bool> {
    if let Some((_, small)) = SMALL_WORDS.iter().find(|(known, _)| *known == code) {
        let words: Vec<String> = text
            .split(|c: char| !c.is_alphabetic())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let found = words.iter().filter(|word| small.contains(&word.as_str())).count();
        return (!words.is_empty()).then_some(10 * found >= words.len());
    }
    let found = detect(&text.to_lowercase())?.lang();
    Some(self::code(found) == Some(code))
}

/// The code of a language.
fn code(language: Lang) -> Option<&'static str> {
    Some(match language {
        Lang::Afr => "af",
        Lang::Ara => "ar",
        Lang::Bul => "bg",
        Lang::Ben => "bn",
        Lang::Cat => "ca",
        Lang::Ces => "cs",
        Lang::Cym => "cy",
        Lang::Dan => "da",
        Lang::Deu => "de",
        Lang::Ell => "el",
        Lang::Eng => "en",
        Lang::Spa => "es",
        Lang::Est => "et",
        Lang::Pes => "fa",
        Lang::Fin => "fi",
        Lang::Fra => "fr",
        Lang::Guj => "gu",
        Lang::Heb => "he",
        Lang::Hin => "hi",
        Lang::Hrv => "hr",
        Lang::Hun => "hu",
        Lang::Ind => "id",
        Lang::Ita => "it",
        Lang::Jpn => "ja",
        Lang::Kan => "kn",
        Lang::Kor => "ko",
        Lang::Lit => "lt",
        Lang::Lav => "lv",
        Lang::Mkd => "mk",
        Lang::Mal => "ml",
        Lang::Mar => "mr",
        Lang::Nep => "ne",
        Lang::Nld => "nl",
        Lang::Nob => "no",
        Lang::Pan => "pa",
        Lang::Pol => "pl",
        Lang::Por => "pt",
        Lang::Ron => "ro",
        Lang::Rus => "ru",
        Lang::Slk => "sk",
        Lang::Slv => "sl",
        Lang::Swe => "sv",
        Lang::Tam => "ta",
        Lang::Tel => "te",
        Lang::Tha => "th",
        Lang::Tgl => "tl",
        Lang::Tur => "tr",
        Lang::Ukr => "uk",
        Lang::Urd => "ur",
        Lang::Vie => "vi",
        Lang::Cmn => "zh-cn",
        _ => return None,
    })
}
