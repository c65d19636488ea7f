//! Adapters that are held apart from their base, on a device: what each adds to which product.

use super::adapter::{Adapter, SITES, site};
use super::{LayerTensor, ModelError};
use crate::device::{LowRank, Ops};

/// All adapters of a hosted model, by their number.
pub(super) struct Changes<O: Ops> {
    adapters: Vec<Vec<[Option<Change<O>>; SITES.len()]>>,
}

/// What one adapter adds to one product.
struct Change<O: Ops> {
    down: O::Buffer,
    up: O::Buffer,
}

impl<O: Ops> Changes<O> {
    /// Takes adapters onto a device.
    pub(super) fn new(ops: &O, adapters: &[Adapter], layers: usize) -> Result<Self, ModelError> {
        let change = |adapter: &Adapter, layer, site| -> Result<_, ModelError> {
            let Some(numbers) = adapter.numbers(layer, site)? else { return Ok(None) };
            Ok(Some(Change { down: ops.upload(&numbers.down)?, up: ops.upload(&numbers.up)? }))
        };
        let layer = |adapter: &Adapter, layer| -> Result<_, ModelError> {
            let mut changes = [const { None }; SITES.len()];
            for (place, site) in changes.iter_mut().zip(SITES) {
                *place = change(adapter, layer, site)?;
            }
            Ok(changes)
        };
        let adapters = adapters
            .iter()
            .map(|adapter| (0..layers).map(|index| layer(adapter, index)).collect())
            .collect::<Result<_, ModelError>>()?;
        Ok(Self { adapters })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.adapters.len()
    }

    /// Adds what the rows' adapters change of a product of `input`.
    pub(super) fn add(
        &self,
        ops: &mut O,
        rows: &O::Rows,
        (layer, tensor): (usize, LayerTensor),
        input: &O::Buffer,
        out: &mut O::Buffer,
    ) {
        let Some(site) = site(tensor) else { return };
        let change =
            |adapter: &Vec<[Option<Change<O>>; SITES.len()]>| adapter[layer][site].is_some();
        if !self.adapters.iter().any(change) {
            return;
        }
        let changes: Vec<Option<LowRank<'_, O>>> = self
            .adapters
            .iter()
            .map(|adapter| {
                let change = adapter[layer][site].as_ref()?;
                Some(LowRank { down: &change.down, up: &change.up })
            })
            .collect();
        ops.add_low_rank(rows, input, &changes, out);
    }
}
