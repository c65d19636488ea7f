//! In which language a text is, as langdetect 1.0.9 says.

use std::sync::LazyLock;

use langdetect::{DetectorFactory, Seed};

/// The detector walks at random; here always from the same seed, so that a text has one language.
static DETECTOR: LazyLock<DetectorFactory> = LazyLock::new(|| {
    let mut factory = DetectorFactory::builtin().clone();
    factory.seed = Seed::Int(0);
    factory
});

/// The language of a text as an ISO 639-1 code (`zh-cn` and `zh-tw` are two); none where nothing in it
/// tells, such as in `12`.
pub fn language(text: &str) -> Option<String> {
    DETECTOR.detect(text).ok()
}

/// Whether a code is one that `language` can answer with.
pub fn is_known(code: &str) -> bool {
    DETECTOR.langlist().iter().any(|known| known == code)
}
