//! The random numbers of a draw: Philox4x32-10 (`device::cpu::noise`), keyed by the seed and counted
//! by (token id, position, stream). A pure function of them, so a draw depends on what it is for and
//! never on what was drawn before.

use super::Sampling;
use crate::device::cpu::noise::Draw;

/// The random numbers of one position of one stream. Seed, stream, position and id are the
/// generator's key and counter in full, so two different draws never share their bits by collision.
pub(super) fn draw_at(sampling: &Sampling, position: usize) -> Draw {
    let Sampling { seed, stream, .. } = *sampling;
    Draw {
        key: [seed as u32, (seed >> 32) as u32],
        counter: [position as u32, stream as u32, (stream >> 32) as u32],
    }
}
