//! The tokens at which a model's reply ends.

use std::collections::BTreeSet;

use serde_json::Value;

use super::TokenId;
use super::template::{ChatTemplate, TemplateError};
use super::tokenizer::{Tokenizer, TokenizerError};
use crate::store::ModelFiles;

/// The ids that end a reply, rising: the end of text and of turn that the tokenizer names, those of
/// config.json and generation_config.json, and the token with which the chat template ends an
/// assistant's turn.
pub fn stop_ids(
    files: &ModelFiles,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
) -> Result<Vec<TokenId>, TemplateError> {
    let mut stops: BTreeSet<TokenId> =
        [tokenizer.eos(), tokenizer.eot()].into_iter().flatten().collect();
    match files {
        ModelFiles::Gguf(gguf) => {
            let key = "tokenizer.ggml.eom_token_id";
            if gguf.metadata().contains(key) {
                stops.insert(TokenId(gguf.metadata().u32(key)?));
            }
        }
        ModelFiles::Safetensors(model) => {
            let configs = [
                ("config.json", Some(model.config())),
                ("generation_config.json", model.generation_config()),
            ];
            for (file, config) in configs {
                let Some(named) = config.and_then(|config| config.get("eos_token_id")) else {
                    continue;
                };
                let ids = eos_ids(named).ok_or_else(|| TokenizerError::Damaged {
                    path: model.folder().join(file),
                    field: "eos_token_id".to_owned(),
                    why: format!("{named} is neither a token id nor a list of them"),
                })?;
                stops.extend(ids);
            }
        }
    }
    if let Some(template) = template {
        stops.extend(template.turn_end(tokenizer)?);
    }
    Ok(stops.into_iter().collect())
}

/// A number, a list of numbers, or null.
fn eos_ids(value: &Value) -> Option<Vec<TokenId>> {
    let id = |value: &Value| Some(TokenId(u32::try_from(value.as_u64()?).ok()?));
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(ids) => ids.iter().map(id).collect(),
        one => Some(vec![id(one)?]),
    }
}
