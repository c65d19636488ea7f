//! Products with panels on AVX-512 with VNNI: two panels at once, sixteen outputs in a register, and one
//! instruction for four products of 8 bits and their sum in 32.
//!
//! The arithmetic is that of `quantised`, lane by lane: the integer sums are exact on any way, and what is
//! done to them in f32 is done in the same order. So this gives the same bits as the other forms, which a
//! panel without a partner goes through.
//!
//! Every function here is reached only where `Form::Avx512` is, which `Tier::detect` makes after the
//! processor said that it has the features named at each.

use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

use super::lanes::{Avx2, Lanes};
use super::linear::{Input, Job, one_panel, write_unit};
use super::quantised::{Activations, BLOCK, Format, PANEL, bytes_at, for_format};
use crate::store::WeightType;

/// Input rows that pass two panels together: their blocks stay in the second-level cache.
const ROWS: usize = 128;
/// How far before its use a block is asked for, in bytes.
const AHEAD: usize = 1024;

/// The units of a job whose weight lies in panels.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn panel_task(panels: &[u8], job: &Job<'_>, input: &Input<'_>, units: Range<usize>) {
    for_format!(
        job.weight.kind(),
        panel_units[](panels, job, input, units),
        unreachable!("a plain type is never in panels")
    );
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn panel_units<F: Format>(panels: &[u8], job: &Job<'_>, input: &Input<'_>, units: Range<usize>) {
    for first in (0..input.rows).step_by(ROWS) {
        let rows = first..(first + ROWS).min(input.rows);
        let mut unit = units.start;
        while unit + 2 <= units.end {
            two_panels::<F>(panels, job, input, &rows, unit);
            unit += 2;
        }
        if unit < units.end {
            one_panel::<Avx2, F>(panels, job, input, &rows, unit);
        }
    }
}

/// Two panels with a range of rows, eight rows at a time.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn two_panels<F: Format>(
    panels: &[u8],
    job: &Job<'_>,
    input: &Input<'_>,
    rows: &Range<usize>,
    unit: usize,
) {
    let blocks = job.weight.inputs / BLOCK;
    let size = blocks / F::SUBS * F::PANEL_SIZE;
    let panels = [&panels[unit * size..], &panels[(unit + 1) * size..]];
    let mut row = rows.start;
    macro_rules! rows_at_once {
        ($count:literal) => {{
            // The first rows bring the panels into the cache.
            let (acts, ahead) = (input.quantised, row == 0);
            let sums = panel_rows::<F, $count>(panels, acts, row, blocks, ahead);
            for (t, sums) in sums.into_iter().enumerate() {
                let halves = [_mm512_castps512_ps256(sums), upper_lanes(sums)];
                for (half, sums) in halves.into_iter().enumerate() {
                    // SAFETY: every unit of every job is in exactly one task.
                    unsafe { write_unit(Avx2(sums), job, row + t, unit + half) };
                }
            }
            row += $count;
        }};
    }
    while row + 8 <= rows.end {
        rows_at_once!(8);
    }
    if row + 4 <= rows.end {
        rows_at_once!(4);
    }
    match rows.end - row {
        3 => rows_at_once!(3),
        2 => rows_at_once!(2),
        1 => rows_at_once!(1),
        _ => {}
    }
    debug_assert_eq!(row, rows.end);
}

/// The upper eight lanes, without AVX-512DQ.
#[inline]
#[target_feature(enable = "avx512f")]
fn upper_lanes(x: __m512) -> __m256 {
    _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x)))
}

/// Products of two panels with `N` rows: lanes 0 to 7 are the first panel's outputs, 8 to 15 the second's.
/// `quantised::panel_rows` says what the arguments are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn panel_rows<F: Format, const N: usize>(
    panels: [&[u8]; 2],
    rows: &[Activations],
    first: usize,
    blocks: usize,
    ahead: bool,
) -> [__m512; N] {
    let mut acts: [&[Activations]; N] = [&[]; N];
    for t in 0..N {
        acts[t] = &rows[(first + t) * blocks..(first + t + 1) * blocks];
    }
    let wholes = blocks / F::SUBS;
    let mut acc = [_mm512_setzero_ps(); N];
    let both = panels[0].chunks_exact(F::PANEL_SIZE).zip(panels[1].chunks_exact(F::PANEL_SIZE));
    for (whole, (one, other)) in both.take(wholes).enumerate() {
        if ahead {
            let from = whole * F::PANEL_SIZE + AHEAD;
            for panel in panels {
                if let Some(ahead) = panel.get(from..from + F::PANEL_SIZE) {
                    Avx2::prefetch(ahead);
                }
            }
        }
        let header = halves(one, other, 0);
        let header_min = if F::HAS_MIN { halves(one, other, 16) } else { header };
        for sub in 0..F::SUBS {
            let b = whole * F::SUBS + sub;
            let mut act = [&acts[0][b]; N];
            for t in 1..N {
                act[t] = &acts[t][b];
            }
            let at = F::HEADER + sub * F::SUB_SIZE;
            let sub = [&one[at..at + F::SUB_SIZE], &other[at..at + F::SUB_SIZE]];
            let (mut scale, mut min) = (header, header_min);
            if F::PARTS == 1 {
                scale = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(bytes_u(sub, 0)));
                min = _mm512_mul_ps(min, _mm512_cvtepi32_ps(bytes_u(sub, 8)));
            }
            let dots = dots::<F, N>(sub, &act);
            for t in 0..N {
                let by = _mm512_mul_ps(scale, _mm512_set1_ps(act[t].scale));
                acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), by, acc[t]);
            }
            if F::HAS_MIN && F::PARTS == 2 {
                let mins = [bytes_u(sub, 16), bytes_u(sub, 24)];
                let pairs = _mm512_or_si512(mins[0], _mm512_slli_epi32::<16>(mins[1]));
                for t in 0..N {
                    let sums = _mm512_madd_epi16(pairs, _mm512_set1_epi32(act[t].halves));
                    let by = _mm512_mul_ps(min, _mm512_set1_ps(-act[t].scale));
                    acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), by, acc[t]);
                }
            } else if F::HAS_MIN {
                for t in 0..N {
                    let sum = if F::PARTS == 0 { act[t].sum } else { -act[t].sum };
                    acc[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(sum), acc[t]);
                }
            }
        }
    }
    acc
}

/// The integer dot products of two panels' blocks of 32 with the same block of `N` rows, as
/// `quantised::BlockDot::dots` before their step to f32.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,avx512vnni")]
fn dots<F: Format, const N: usize>(sub: [&[u8]; 2], acts: &[&Activations; N]) -> [__m512i; N] {
    // Weights are taken as unsigned: 8-bit ones 128 too large, the others as they are stored.
    let zero = if F::BYTES { 128 } else { F::ZERO };
    let mut first = [_mm512_setzero_si512(); N];
    let mut last = [_mm512_setzero_si512(); N];
    if F::PARTS != 2 && zero != 0 {
        for t in 0..N {
            first[t] = _mm512_set1_epi32(-(zero * acts[t].int_sum));
        }
    }
    if F::BYTES {
        let sign = _mm512_set1_epi8(-128);
        for v in 0..8 {
            let weights = _mm512_xor_si512(vectors(sub, F::QUANTS_AT + 32 * v), sign);
            for t in 0..N {
                let four = _mm512_set1_epi32(acts[t].words[v]);
                first[t] = _mm512_dpbusd_epi32(first[t], weights, four);
            }
        }
        return first;
    }
    let nibble = _mm512_set1_epi8(15);
    let mut upper = [_mm512_setzero_si512(); 2];
    if F::HIGH == 2 {
        upper = [vectors(sub, F::HIGH_AT), vectors(sub, F::HIGH_AT + 32)];
    }
    for v in 0..4 {
        let raw = vectors(sub, F::QUANTS_AT + 32 * v);
        let mut low = _mm512_and_si512(raw, nibble);
        let mut high = _mm512_and_si512(_mm512_srli_epi16::<4>(raw), nibble);
        if F::HIGH == 1 {
            low = _mm512_or_si512(low, _mm512_maskz_set1_epi8(high_mask::<F>(sub, v), 16));
            high = _mm512_or_si512(high, _mm512_maskz_set1_epi8(high_mask::<F>(sub, v + 4), 16));
        }
        if F::HIGH == 2 {
            // Bits 2v and above of each byte, moved to bits 4 and 5.
            let mask = _mm512_set1_epi8(0x30);
            let mut moved = upper;
            for moved in &mut moved {
                *moved = match v {
                    0 => _mm512_slli_epi16::<4>(*moved),
                    1 => _mm512_slli_epi16::<2>(*moved),
                    2 => *moved,
                    _ => _mm512_srli_epi16::<2>(*moved),
                };
            }
            low = _mm512_or_si512(low, _mm512_and_si512(moved[0], mask));
            high = _mm512_or_si512(high, _mm512_and_si512(moved[1], mask));
        }
        for t in 0..N {
            first[t] = _mm512_dpbusd_epi32(first[t], low, _mm512_set1_epi32(acts[t].words[v]));
        }
        for t in 0..N {
            let four = _mm512_set1_epi32(acts[t].words[v + 4]);
            if F::PARTS == 2 {
                last[t] = _mm512_dpbusd_epi32(last[t], high, four);
            } else {
                first[t] = _mm512_dpbusd_epi32(first[t], high, four);
            }
        }
    }
    if F::PARTS == 2 {
        let scales = [bytes_i(sub, 0), bytes_i(sub, 8)];
        for t in 0..N {
            let (mut a, mut b) = (first[t], last[t]);
            if F::ZERO != 0 {
                a = _mm512_sub_epi32(a, _mm512_set1_epi32(F::ZERO * acts[t].half(0)));
                b = _mm512_sub_epi32(b, _mm512_set1_epi32(F::ZERO * acts[t].half(1)));
            }
            // At most 16 × 63 × 127 × 128 in magnitude, which fits.
            let a = _mm512_mullo_epi32(a, scales[0]);
            first[t] = _mm512_add_epi32(a, _mm512_mullo_epi32(b, scales[1]));
        }
    }
    first
}

/// The high bits of group `g` of both panels, a bit for each byte.
#[inline]
fn high_mask<F: Format>(sub: [&[u8]; 2], g: usize) -> u64 {
    let [one, other] =
        sub.map(|sub| u64::from(u32::from_le_bytes(*bytes_at(sub, F::HIGH_AT + 4 * g))));
    one | other << 32
}

/// 32 bytes of each panel's block from byte `at`, the first panel's below.
#[inline]
#[target_feature(enable = "avx512f")]
fn vectors(sub: [&[u8]; 2], at: usize) -> __m512i {
    // SAFETY: as many bytes, and any bits may fill the registers.
    let [one, other] = sub.map(|sub| unsafe { transmute::<[u8; 32], __m256i>(*bytes_at(sub, at)) });
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(one), other)
}

/// Eight f16 numbers of each panel's block from byte `at`, widened.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(one: &[u8], other: &[u8], at: usize) -> __m512 {
    // SAFETY: as many bytes, and any bits may fill the registers.
    let [one, other] =
        [one, other].map(|block| unsafe { transmute::<[u8; 16], __m128i>(*bytes_at(block, at)) });
    _mm512_cvtph_ps(_mm256_inserti128_si256::<1>(_mm256_castsi128_si256(one), other))
}

/// Eight bytes of each panel's block from byte `at`, the first panel's below.
#[inline]
#[target_feature(enable = "avx2")]
fn eights(sub: [&[u8]; 2], at: usize) -> __m128i {
    let [one, other] = sub.map(|sub| i64::from_le_bytes(*bytes_at(sub, at)));
    _mm_set_epi64x(other, one)
}

/// Eight unsigned bytes of each panel's block, each in a lane of 32 bits.
#[inline]
#[target_feature(enable = "avx2,avx512f")]
fn bytes_u(sub: [&[u8]; 2], at: usize) -> __m512i {
    _mm512_cvtepu8_epi32(eights(sub, at))
}

/// Eight signed bytes of each panel's block, each in a lane of 32 bits.
#[inline]
#[target_feature(enable = "avx2,avx512f")]
fn bytes_i(sub: [&[u8]; 2], at: usize) -> __m512i {
    _mm512_cvtepi8_epi32(eights(sub, at))
}

const _: () = assert!(PANEL == 8, "a register of sixteen lanes is two panels");
