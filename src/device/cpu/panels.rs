//! Panels of eight rows made of a file's rows, and single rows read back (`quantised` has the layout).

use super::quantised::{BLOCK, Format, PANEL, bytes_at, stored};
use half::f16;

/// Interleaves up to eight rows of `blocks` blocks, as in the file, into a panel; rows that are
/// missing are zeros. `out` has the bytes of the panel and is zero.
pub(super) fn interleave<F: Format + Unpacked>(file: &[u8], blocks: usize, out: &mut [u8]) {
    for (lane, row) in file.chunks_exact(blocks * F::SIZE).take(PANEL).enumerate() {
        let outs = out.chunks_exact_mut(F::PANEL_SIZE);
        for (block, out) in row.chunks_exact(F::SIZE).zip(outs) {
            if F::PARTS == 0 {
                interleave_block::<F>(block, lane, out);
            } else {
                pack::<F>(&F::unpack(block), lane, out);
            }
        }
    }
}

/// A block of 32: its parts keep their order, and the groups of the file are those of the panel.
fn interleave_block<F: Format>(block: &[u8], lane: usize, out: &mut [u8]) {
    let (scale, rest) = block.split_at(2);
    out[2 * lane..2 * lane + 2].copy_from_slice(scale);
    let (min, rest) = rest.split_at(if F::HAS_MIN { 2 } else { 0 });
    if F::HAS_MIN {
        out[16 + 2 * lane..18 + 2 * lane].copy_from_slice(min);
    }
    let sub = &mut out[F::HEADER..];
    let (high, quants) = rest.split_at(4 * F::HIGH);
    // Byte `k` of `high` has the bits of groups 2k and 2k+1.
    for (k, bits) in high.iter().enumerate() {
        for (group, four) in [(2 * k, bits & 15), (2 * k + 1, bits >> 4)] {
            sub[F::HIGH_AT + 4 * group + lane / 2] |= four << (4 * (lane % 2));
        }
    }
    for (v, four) in quants.chunks_exact(4).enumerate() {
        let at = F::QUANTS_AT + 32 * v + 4 * lane;
        sub[at..at + 4].copy_from_slice(four);
    }
}

/// A block of 256 of a K type with its parts taken out of their packing.
pub(super) struct Whole {
    scale: [u8; 2],
    min: [u8; 2],
    /// One for every 16 or 32 weights.
    scales: [u8; 16],
    mins: [u8; 16],
    weights: [u8; 256],
}

/// How a block of a K type is packed in the file.
pub(super) trait Unpacked {
    fn unpack(block: &[u8]) -> Whole;
}

fn pack<F: Format>(whole: &Whole, lane: usize, out: &mut [u8]) {
    out[2 * lane..2 * lane + 2].copy_from_slice(&whole.scale);
    if F::HAS_MIN {
        out[16 + 2 * lane..18 + 2 * lane].copy_from_slice(&whole.min);
    }
    let subs = out[F::HEADER..].chunks_exact_mut(F::SUB_SIZE);
    for (s, (sub, weights)) in subs.zip(whole.weights.as_chunks::<BLOCK>().0).enumerate() {
        for part in 0..F::PARTS {
            sub[8 * part + lane] = whole.scales[F::PARTS * s + part];
            if F::HAS_MIN {
                sub[8 * (F::PARTS + part) + lane] = whole.mins[F::PARTS * s + part];
            }
        }
        for (k, weight) in weights.iter().enumerate() {
            let (group, byte) = (k / 4, 4 * lane + k % 4);
            let at = F::QUANTS_AT + 32 * (group % 4) + byte;
            sub[at] |= (weight & 15) << (4 * (group / 4));
            match F::HIGH {
                0 => {}
                1 => sub[F::HIGH_AT + 4 * group + byte / 8] |= (weight >> 4) << (byte % 8),
                _ => {
                    sub[F::HIGH_AT + 32 * (group / 4) + byte] |= (weight >> 4) << (2 * (group % 4));
                }
            }
        }
    }
}

macro_rules! not_packed {
    ($($name:ident)*) => {$(
        impl Unpacked for super::quantised::$name {
            fn unpack(_: &[u8]) -> Whole {
                unreachable!("blocks of 32 are interleaved as they are")
            }
        }
    )*};
}
not_packed!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0);

/// Scale and minimum number `i` of eight, 6 bits each in 12 bytes: the first four of both in the low
/// six bits of bytes 0..4 and 4..8; the last four in the nibbles of bytes 8..12 with their upper two
/// bits on top of the first four.
fn six_bits(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        return (packed[i] & 63, packed[i + 4] & 63);
    }
    let (low, upper) = (packed[i + 4], (packed[i - 4] >> 6, packed[i] >> 6));
    (low & 15 | upper.0 << 4, low >> 4 | upper.1 << 4)
}

/// Header and scales that Q4_K and Q5_K begin with.
fn begin_whole(block: &[u8]) -> Whole {
    let mut whole = Whole {
        scale: *bytes_at(block, 0),
        min: *bytes_at(block, 2),
        scales: [0; 16],
        mins: [0; 16],
        weights: [0; 256],
    };
    for i in 0..8 {
        (whole.scales[i], whole.mins[i]) = six_bits(&block[4..16], i);
    }
    whole
}

impl Unpacked for super::quantised::Q4_K {
    fn unpack(block: &[u8]) -> Whole {
        let mut whole = begin_whole(block);
        for (k, weight) in whole.weights.iter_mut().enumerate() {
            *weight = block[16 + k / 64 * 32 + k % 32] >> (4 * (k / 32 % 2)) & 15;
        }
        whole
    }
}

impl Unpacked for super::quantised::Q5_K {
    fn unpack(block: &[u8]) -> Whole {
        let mut whole = begin_whole(block);
        for (k, weight) in whole.weights.iter_mut().enumerate() {
            let low = block[48 + k / 64 * 32 + k % 32] >> (4 * (k / 32 % 2)) & 15;
            *weight = low | (block[16 + k % 32] >> (k / 32) & 1) << 4;
        }
        whole
    }
}

impl Unpacked for super::quantised::Q6_K {
    fn unpack(block: &[u8]) -> Whole {
        let mut whole = Whole {
            scale: *bytes_at(block, 208),
            min: [0; 2],
            scales: *bytes_at(block, 192),
            mins: [0; 16],
            weights: [0; 256],
        };
        for (k, weight) in whole.weights.iter_mut().enumerate() {
            // Of each 128 weights: four runs of 32, the first two in the low nibbles.
            let (half, run, l) = (k / 128, k / 32 % 4, k % 32);
            let low = block[64 * half + 32 * (run % 2) + l] >> (4 * (run / 2)) & 15;
            *weight = low | (block[128 + 32 * half + l] >> (2 * run) & 3) << 4;
        }
        whole
    }
}

/// The two bits of weight `k` in the 64 bytes of Q2_K and Q3_K.
fn two_bits(quants: &[u8], k: usize) -> u8 {
    quants[k / 128 * 32 + k % 32] >> (2 * (k / 32 % 4)) & 3
}

impl Unpacked for super::quantised::Q2_K {
    fn unpack(block: &[u8]) -> Whole {
        let packed: &[u8; 16] = bytes_at(block, 0);
        let mut whole = Whole {
            scale: *bytes_at(block, 80),
            min: *bytes_at(block, 82),
            scales: packed.map(|byte| byte & 15),
            mins: packed.map(|byte| byte >> 4),
            weights: [0; 256],
        };
        for (k, weight) in whole.weights.iter_mut().enumerate() {
            *weight = two_bits(&block[16..80], k);
        }
        whole
    }
}

impl Unpacked for super::quantised::Q3_K {
    fn unpack(block: &[u8]) -> Whole {
        let mut whole = Whole {
            scale: *bytes_at(block, 108),
            min: [0; 2],
            scales: [0; 16],
            mins: [0; 16],
            weights: [0; 256],
        };
        for (k, weight) in whole.weights.iter_mut().enumerate() {
            *weight = two_bits(&block[32..96], k) | (block[k % 32] >> (k / 32) & 1) << 2;
        }
        // 6 bits each, 32 above their value: nibbles in the first eight bytes, upper bits behind.
        let packed = &block[96..108];
        for (i, scale) in whole.scales.iter_mut().enumerate() {
            let low = packed[i % 8] >> (4 * (i / 8)) & 15;
            let upper = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
            *scale = (low | upper << 4).wrapping_sub(32);
        }
        whole
    }
}

/// The f16 number of one row among the eight from byte `at`.
fn f16_at(block: &[u8], at: usize, lane: usize) -> f32 {
    f16::from_le_bytes(*bytes_at(block, at + 2 * lane)).to_f32()
}

/// One row of a panelled weight as f32, `d * (q - zero)` or `fma(d, q, m)`.
pub(super) fn unpack_row<F: Format>(panels: &[u8], row: usize, out: &mut [f32]) {
    let wholes = out.len() / BLOCK / F::SUBS;
    let lane = row % PANEL;
    let panel = &panels[row / PANEL * wholes * F::PANEL_SIZE..][..wholes * F::PANEL_SIZE];
    let outs = out.chunks_exact_mut(BLOCK * F::SUBS);
    for (block, out) in panel.chunks_exact(F::PANEL_SIZE).zip(outs) {
        let scale = f16_at(block, 0, lane);
        let min = if F::HAS_MIN { f16_at(block, 16, lane) } else { 0.0 };
        let subs = block[F::HEADER..].chunks_exact(F::SUB_SIZE);
        for (sub, out) in subs.zip(out.chunks_exact_mut(BLOCK)) {
            for (k, out) in out.iter_mut().enumerate() {
                let part = k / 16 * (F::PARTS / 2);
                let (scale, min) = match F::PARTS {
                    0 => (scale, min),
                    1 => (
                        scale * f32::from(sub[8 * part + lane]),
                        -min * f32::from(sub[8 * (1 + part) + lane]),
                    ),
                    _ => (
                        scale * f32::from(sub[8 * part + lane] as i8),
                        -min * if F::HAS_MIN { f32::from(sub[8 * (2 + part) + lane]) } else { 0.0 },
                    ),
                };
                *out = ((stored::<F>(sub, lane, k) - F::ZERO) as f32).mul_add(scale, min);
            }
        }
    }
}
