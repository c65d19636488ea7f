//! Which items of a task are used.

use sha2::{Digest, Sha256};

use super::Item;
use super::read::TaskError;

/// Which items of a task are used. The same selection of the same file gives the same items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Most items.
    pub limit: Option<usize>,
    /// Draw them at random, by this seed, instead of taking the first ones.
    pub sample: Option<u64>,
    /// Just these.
    pub ids: Vec<String>,
}

impl Selection {
    /// The items, in the order of the file. A sample is of those whose digest with the seed is least, so
    /// it depends on their ids and not on what else the file holds before them.
    pub fn of(&self, task: &str, mut items: Vec<Item>) -> Result<Vec<Item>, TaskError> {
        if let Some(id) = self.ids.iter().find(|id| items.iter().all(|item| item.id != **id)) {
            let first = items.first().map(|item| item.id.clone()).unwrap_or_default();
            return Err(TaskError::NoItem { task: task.to_owned(), id: id.clone(), first });
        }
        if !self.ids.is_empty() {
            items.retain(|item| self.ids.contains(&item.id));
        }
        let limit = self.limit.unwrap_or(usize::MAX).min(items.len());
        let Some(seed) = self.sample else {
            items.truncate(limit);
            return Ok(items);
        };
        let draw = |id: &str| Sha256::digest(format!("{seed} {id}").as_bytes());
        let mut draws: Vec<_> = items.iter().map(|item| draw(&item.id)).collect();
        draws.sort();
        let drawn = |item: &Item| draws[..limit].binary_search(&draw(&item.id)).is_ok();
        items.retain(drawn);
        Ok(items)
    }
}
