//! Prompt templates: the built-in ones of `prompts/`, or a folder of the user's.

/// The prompt templates in use.
#[derive(Debug)]
pub struct Prompts {
    _private: (),
}
