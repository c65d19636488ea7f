//! Products with plain weights (f32, f16, bf16).
//!
//! The declared arithmetic of one output: eight sums by index mod 8 with fused multiply-adds, as if
//! the row were padded with zeros to a multiple of eight, then the tree of [`Lanes::sum`].

use super::lanes::Lanes;
use crate::store::WeightType;

/// Eight weights at a time, widened to f32.
pub(super) trait Plain {
    /// Bytes of one weight.
    const SIZE: usize;
    /// The bytes of eight weights.
    type Eight: Copy;
    /// Bytes in eights, and what is left.
    fn eights(bytes: &[u8]) -> (&[Self::Eight], &[u8]);
    fn widen<V: Lanes>(eight: &Self::Eight) -> V;
    fn one(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Plain for F32 {
    const SIZE: usize = 4;
    type Eight = [u8; 32];
    #[inline(always)]
    fn eights(bytes: &[u8]) -> (&[[u8; 32]], &[u8]) {
        bytes.as_chunks()
    }
    #[inline(always)]
    fn widen<V: Lanes>(eight: &[u8; 32]) -> V {
        V::load_f32(eight)
    }
    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Plain for F16 {
    const SIZE: usize = 2;
    type Eight = [u8; 16];
    #[inline(always)]
    fn eights(bytes: &[u8]) -> (&[[u8; 16]], &[u8]) {
        bytes.as_chunks()
    }
    #[inline(always)]
    fn widen<V: Lanes>(eight: &[u8; 16]) -> V {
        V::load_f16(eight)
    }
    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

impl Plain for BF16 {
    const SIZE: usize = 2;
    type Eight = [u8; 16];
    #[inline(always)]
    fn eights(bytes: &[u8]) -> (&[[u8; 16]], &[u8]) {
        bytes.as_chunks()
    }
    #[inline(always)]
    fn widen<V: Lanes>(eight: &[u8; 16]) -> V {
        V::load_bf16(eight)
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
    let eights = inputs[0].len() / 8;
    let mut w: [(&[P::Eight], &[u8]); M] = [(&[], &[]); M];
    for m in 0..M {
        let (whole, tail) = P::eights(weights[m]);
        w[m] = (&whole[..eights], tail);
    }
    let mut x: [(&[[f32; 8]], &[f32]); N] = [(&[], &[]); N];
    for t in 0..N {
        let (whole, tail) = inputs[t].as_chunks::<8>();
        x[t] = (&whole[..eights], tail);
    }
    let mut acc = [[V::splat(0.0); N]; M];
    for k in 0..eights {
        let mut input = [V::splat(0.0); N];
        for t in 0..N {
            input[t] = V::load(&x[t].0[k]);
        }
        for m in 0..M {
            let weight: V = P::widen(&w[m].0[k]);
            for t in 0..N {
                acc[m][t] = weight.fma(input[t], acc[m][t]);
            }
        }
    }
    if !x[0].1.is_empty() {
        for m in 0..M {
            let mut padded = [0.0; 8];
            widen::<P>(w[m].1, &mut padded);
            let weight = V::load(&padded);
            for t in 0..N {
                acc[m][t] = weight.fma(V::load_tail(x[t].1), acc[m][t]);
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
    let (whole, rest) = P::eights(bytes);
    for (eight, out) in whole.iter().zip(eights) {
        P::widen::<V>(eight).store(out);
    }
    widen::<P>(rest, tail);
}
