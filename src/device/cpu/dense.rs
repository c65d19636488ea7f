//! Products with plain weights (f32, f16, bf16).
//!
//! The declared arithmetic of one output: eight sums by index mod 8 with fused multiply-adds, as if
//! the row were padded with zeros to a multiple of eight, then the tree of [`Lanes::sum`].

use super::lanes::Lanes;
use super::quantised::bytes_at;
use crate::store::WeightType;

/// Eight weights at a time, widened to f32.
pub(super) trait Plain {
    /// Bytes of one weight.
    const SIZE: usize;
    /// Eight weights, `8 * SIZE` bytes.
    fn eight<V: Lanes>(bytes: &[u8]) -> V;
    fn one(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Plain for F32 {
    const SIZE: usize = 4;
    #[inline(always)]
    fn eight<V: Lanes>(bytes: &[u8]) -> V {
        V::load_f32(bytes_at(bytes, 0))
    }
    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Plain for F16 {
    const SIZE: usize = 2;
    #[inline(always)]
    fn eight<V: Lanes>(bytes: &[u8]) -> V {
        V::load_f16(bytes_at(bytes, 0))
    }
    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

impl Plain for BF16 {
    const SIZE: usize = 2;
    #[inline(always)]
    fn eight<V: Lanes>(bytes: &[u8]) -> V {
        V::load_bf16(bytes_at(bytes, 0))
    }
    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

/// Calls `$run::<…, P>(arguments)` with the plain type of `$kind`; `$other` for the block formats.
macro_rules! for_plain {
    ($kind:expr, $run:ident[$($lanes:ident,)?]($($arg:expr),* $(,)?), $other:expr) => {
        match $kind {
            WeightType::F32 => $run::<$($lanes,)? $crate::device::cpu::dense::F32>($($arg),*),
            WeightType::F16 => $run::<$($lanes,)? $crate::device::cpu::dense::F16>($($arg),*),
            WeightType::BF16 => $run::<$($lanes,)? $crate::device::cpu::dense::BF16>($($arg),*),
            _ => $other,
        }
    };
}
pub(super) use for_plain;

/// The numbers of a row of plain weights as f32.
pub(super) fn widen<P: Plain>(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.chunks_exact(P::SIZE).zip(out) {
        *out = P::one(bytes);
    }
}

/// [`widen`] by the type's name; block formats are left to their panels.
pub(super) fn widen_kind(kind: WeightType, bytes: &[u8], out: &mut [f32]) {
    for_plain!(kind, widen[](bytes, out), unreachable!("a block format has no plain rows"));
}

/// Products of `M` rows of weights, `[M][columns]` bytes, with `N` rows of inputs.
#[inline(always)]
pub(super) fn tile<V: Lanes, P: Plain, const M: usize, const N: usize>(
    weights: [&[u8]; M],
    inputs: [&[f32]; N],
) -> [[f32; N]; M] {
    let columns = inputs[0].len();
    let whole = columns / 8 * 8;
    let mut acc = [[V::splat(0.0); N]; M];
    for k in (0..whole).step_by(8) {
        let mut x = [V::splat(0.0); N];
        for t in 0..N {
            x[t] = V::load(&inputs[t].as_chunks::<8>().0[k / 8]);
        }
        for m in 0..M {
            let w: V = P::eight(&weights[m][k * P::SIZE..(k + 8) * P::SIZE]);
            for t in 0..N {
                acc[m][t] = w.fma(x[t], acc[m][t]);
            }
        }
    }
    if whole < columns {
        for m in 0..M {
            let mut padded = [0.0; 8];
            widen::<P>(&weights[m][whole * P::SIZE..columns * P::SIZE], &mut padded);
            let w = V::load(&padded);
            for t in 0..N {
                acc[m][t] = w.fma(V::load_tail(&inputs[t][whole..]), acc[m][t]);
            }
        }
    }
    let mut sums = [[0.0; N]; M];
    for m in 0..M {
        for t in 0..N {
            sums[m][t] = acc[m][t].sum();
        }
    }
    sums
}

/// [`widen`], eight at a time.
#[inline(always)]
pub(super) fn widen_eights<V: Lanes, P: Plain>(bytes: &[u8], out: &mut [f32]) {
    let (eights, tail) = out.as_chunks_mut::<8>();
    let whole = eights.len() * 8 * P::SIZE;
    for (bytes, out) in bytes.chunks_exact(8 * P::SIZE).zip(eights) {
        P::eight::<V>(bytes).store(out);
    }
    widen::<P>(&bytes[whole..], tail);
}
