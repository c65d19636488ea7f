//! Products and rows of every weight type against f64 arithmetic from the bytes of the file, and the
//! two forms of the kernels against each other.

use super::disjoint::Disjoint;
use super::lanes::Tier;
use super::linear::{Job, Weight};
use super::*;
use crate::device::KvType;
use crate::store::{Tensor, WeightType};
use half::{bf16, f16};

const KINDS: [WeightType; 13] = [
    WeightType::F32,
    WeightType::F16,
    WeightType::BF16,
    WeightType::Q4_0,
    WeightType::Q4_1,
    WeightType::Q5_0,
    WeightType::Q5_1,
    WeightType::Q8_0,
    WeightType::Q2_K,
    WeightType::Q3_K,
    WeightType::Q4_K,
    WeightType::Q5_K,
    WeightType::Q6_K,
];

/// Bytes that depend on nothing but the seed.
struct Bytes(u32);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 24) as u8
    }

    fn float(&mut self) -> f32 {
        f32::from(self.next()) / 128.0 - 1.0 + f32::from(self.next()) / 32768.0
    }
}

/// One block (or plain number) of weights; `fill` gives its stored integers.
fn block(kind: WeightType, bytes: &mut Bytes, fill: Option<u8>) -> Vec<u8> {
    let plain = bytes.float();
    let mut block: Vec<u8> = match kind {
        WeightType::F32 => return plain.to_le_bytes().to_vec(),
        WeightType::F16 => return f16::from_f32(plain).to_le_bytes().to_vec(),
        WeightType::BF16 => return bf16::from_f32(plain).to_le_bytes().to_vec(),
        WeightType::Q4_1 | WeightType::Q5_1 => {
            [f16::from_f32(plain / 16.0), f16::from_f32(bytes.float())]
                .map(f16::to_le_bytes)
                .concat()
        }
        WeightType::Q2_K | WeightType::Q4_K | WeightType::Q5_K => {
            [f16::from_f32(plain / 256.0), f16::from_f32(bytes.float() / 64.0)]
                .map(f16::to_le_bytes)
                .concat()
        }
        _ => f16::from_f32(plain / 16.0).to_le_bytes().to_vec(),
    };
    while block.len() < kind.block_bytes() {
        block.push(fill.unwrap_or_else(|| bytes.next()));
    }
    // These have their header at the end.
    match kind {
        WeightType::Q2_K => block.rotate_left(4),
        WeightType::Q3_K | WeightType::Q6_K => block.rotate_left(2),
        _ => {}
    }
    block
}

fn tensor(kind: WeightType, outputs: usize, inputs: usize, fill: Option<u8>) -> Tensor {
    let mut bytes = Bytes(outputs as u32 * 31 + inputs as u32);
    let count = outputs * inputs / kind.block_len();
    let data: Vec<u8> = (0..count).flat_map(|_| block(kind, &mut bytes, fill)).collect();
    let mut map = memmap2::MmapMut::map_anon(data.len()).expect("memory");
    map.copy_from_slice(&data);
    let map = std::sync::Arc::new(map.make_read_only().expect("a read-only mapping"));
    Tensor::new("test".into(), kind, vec![outputs, inputs], map, 0, data.len())
}

/// One row of a tensor in f64: the blocks of 32 from the description of the file format, the K types by
/// candle's own reading of them (f32, rounded at most twice).
fn exact_row(tensor: &Tensor, row: usize) -> Vec<f64> {
    let kind = tensor.kind;
    let inputs = tensor.shape[1];
    let size = inputs / kind.block_len() * kind.block_bytes();
    let bytes = &tensor.bytes()[row * size..(row + 1) * size];
    let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f64();
    let nibble = |q: &[u8], k: usize| f64::from(if k < 16 { q[k] & 15 } else { q[k - 16] >> 4 });
    let high = |q: &[u8], k: usize| f64::from(q[k / 8] >> (k % 8) & 1) * 16.0;
    let number = |b: &[u8], k: usize| match kind {
        WeightType::F32 => f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        WeightType::F16 => half(b),
        WeightType::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f64(),
        WeightType::Q4_0 => half(b) * (nibble(&b[2..], k) - 8.0),
        WeightType::Q4_1 => half(b) * nibble(&b[4..], k) + half(&b[2..]),
        WeightType::Q5_0 => half(b) * (nibble(&b[6..], k) + high(&b[2..], k) - 16.0),
        WeightType::Q5_1 => half(b) * (nibble(&b[8..], k) + high(&b[4..], k)) + half(&b[2..]),
        WeightType::Q8_0 => half(b) * f64::from(b[2 + k] as i8),
        _ => unreachable!("read by candle"),
    };
    if kind.block_len() == 256 {
        return candles_row(kind, bytes);
    }
    let blocks = bytes.chunks_exact(kind.block_bytes());
    blocks.flat_map(|b| (0..kind.block_len()).map(move |k| number(b, k))).collect()
}

fn candles_row(kind: WeightType, bytes: &[u8]) -> Vec<f64> {
    use candle_core::quantized::{GgmlDType, QStorage, QTensor};
    let dtype = match kind {
        WeightType::Q2_K => GgmlDType::Q2K,
        WeightType::Q3_K => GgmlDType::Q3K,
        WeightType::Q4_K => GgmlDType::Q4K,
        WeightType::Q5_K => GgmlDType::Q5K,
        _ => GgmlDType::Q6K,
    };
    let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
    let aligned = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut aligned)[..bytes.len()];
    aligned.copy_from_slice(bytes);
    let device = candle_core::Device::Cpu;
    let storage = QStorage::from_data(std::borrow::Cow::Borrowed(aligned), &device, dtype);
    let count = bytes.len() / kind.block_bytes() * 256;
    let row = QTensor::new(storage.expect("blocks"), count).expect("a row");
    let row: Vec<f32> = row.dequantize(&device).and_then(|row| row.to_vec1()).expect("numbers");
    row.into_iter().map(f64::from).collect()
}

/// Columns that are whole blocks: as many of this kind's blocks as `columns` has of 32.
fn whole(kind: WeightType, columns: usize) -> usize {
    columns / 32 * kind.block_len().max(32)
}

fn inputs(rows: usize, columns: usize) -> Vec<f32> {
    let mut bytes = Bytes(rows as u32 + 77);
    (0..rows * columns).map(|i| bytes.float() * (1.0 + (i / 32 % 5) as f32)).collect()
}

fn weight(tensor: &Tensor) -> Result<Weight, DeviceError> {
    Weight::new(&Pool::new(2).expect("threads"), tensor)
}

fn product(
    tier: Tier,
    threads: usize,
    weight: &Weight,
    input: &[f32],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let rows = input.len() / weight.inputs;
    let mut out = vec![f32::NAN; rows * weight.outputs];
    let mut cpu = Cpu::with_tier(threads, tier).expect("threads");
    let job = Job { weight, bias, out: Disjoint::new(&mut out, rows, weight.outputs) };
    cpu.within(|cpu| cpu.multiply(input, None, rows, &[job]));
    out
}

/// The greatest difference that rounding the activations to blocks of 8 bits allows: half a step of
/// the block times the weights' magnitudes; and some rounding of f32 sums beside it.
fn bound(kind: WeightType, x: &[f32], row: &[f64]) -> f64 {
    let magnitude: f64 = row.iter().zip(x).map(|(w, x)| (w * f64::from(*x)).abs()).sum();
    let rounding = 1e-5 * magnitude + 1e-6;
    if kind.block_len() == 1 {
        return rounding;
    }
    let blocks = x.chunks(32).zip(row.chunks(32));
    let steps = blocks.map(|(x, w)| {
        let step = f64::from(x.iter().fold(0f32, |most, x| most.max(x.abs()))) / 127.0;
        0.5001 * step * w.iter().map(|w| w.abs()).sum::<f64>()
    });
    steps.sum::<f64>() + rounding
}

#[test]
fn products_are_those_of_f64_within_the_rounding_of_activations() {
    for kind in KINDS {
        for (outputs, columns) in [(8, 32), (13, 96), (77, 160), (1, 64), (3, 32), (17, 96)] {
            let columns = whole(kind, columns);
            let tensor = tensor(kind, outputs, columns, None);
            let weight = weight(&tensor).expect("a weight");
            let x = inputs(7, columns);
            let bias: Vec<f32> = (0..outputs).map(|i| i as f32 * 0.25).collect();
            let found = product(Tier::detect(), 2, &weight, &x, Some(&bias));
            for (x, found) in x.chunks(columns).zip(found.chunks(outputs)) {
                for (output, found) in found.iter().enumerate() {
                    let row = exact_row(&tensor, output);
                    let exact: f64 = row.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum();
                    let off = (exact + f64::from(bias[output]) - f64::from(*found)).abs();
                    let bound = bound(kind, x, &row);
                    assert!(off <= bound, "{kind:?} [{outputs}, {columns}]: {off} of {bound}");
                }
            }
        }
    }
}

#[test]
fn the_number_of_rows_threads_and_the_form_change_no_bit_of_a_product() {
    for kind in KINDS {
        // 45 is no whole number of eights, 139 none of fours, 29 fills no panel.
        let columns = if kind.block_len() == 1 { 45 } else { whole(kind, 96) };
        let weight = weight(&tensor(kind, 29, columns, None)).expect("a weight");
        let x = inputs(139, columns);
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let whole = bits(product(Tier::portable(), 2, &weight, &x, None));
        for &tier in Tier::available() {
            for threads in [1, 3] {
                let found = bits(product(tier, threads, &weight, &x, None));
                assert_eq!(whole, found, "{kind:?} {tier:?}");
            }
            for rows in [1, 2, 3, 5, 8, 17] {
                let cut = x.chunks(rows * columns);
                let cut = cut.flat_map(|x| bits(product(tier, 1, &weight, x, None)));
                assert_eq!(whole, cut.collect::<Vec<_>>(), "{kind:?} {tier:?} by {rows}");
            }
        }
    }
}

#[test]
fn the_greatest_integers_do_not_overflow_a_sum() {
    for kind in KINDS.into_iter().filter(|kind| kind.block_len() > 1) {
        // All bits set, and for 8 bits the least number, -128.
        for fill in [0xFF, 0x80, 0x7F] {
            for sign in [1.0, -1.0] {
                let columns = whole(kind, 64);
                let tensor = tensor(kind, 24, columns, Some(fill));
                let weight = weight(&tensor).expect("a weight");
                let x = vec![sign; columns];
                let fast = product(Tier::portable(), 1, &weight, &x, None);
                for &tier in Tier::available() {
                    assert_eq!(fast, product(tier, 1, &weight, &x, None), "{kind:?} {tier:?}");
                }
                for (output, found) in fast.iter().enumerate() {
                    let exact: f64 =
                        exact_row(&tensor, output).iter().sum::<f64>() * f64::from(sign);
                    let off = (exact - f64::from(*found)).abs();
                    let size: f64 = exact_row(&tensor, output).iter().map(|w| w.abs()).sum();
                    assert!(off <= size * 1e-5 + 1e-5, "{kind:?} {fill:x}: {off}");
                }
            }
        }
    }
}

#[test]
fn a_row_of_a_weight_is_the_files_numbers() {
    for kind in KINDS {
        let columns = whole(kind, 64);
        let tensor = tensor(kind, 11, columns, None);
        let weight = weight(&tensor).expect("a weight");
        for row in 0..11 {
            let mut found = vec![0.0; columns];
            weight.row(row, &mut found);
            for (found, exact) in found.iter().zip(exact_row(&tensor, row)) {
                let off = (f64::from(*found) - exact).abs();
                // candle rounds the difference of two exact products of K types a second time.
                let twice = if kind.block_len() == 256 { 1e-7 } else { 0.0 };
                assert!(off <= exact.abs() * 1e-7 + twice, "{kind:?}: {found} {exact}");
            }
        }
    }
}

#[test]
fn what_is_not_finite_in_a_row_stays_in_its_products() {
    for kind in KINDS {
        let columns = whole(kind, 64);
        let weight = weight(&tensor(kind, 17, columns, None)).expect("a weight");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = inputs(2, columns);
            x[40] = bad;
            for &tier in Tier::available() {
                let found = product(tier, 1, &weight, &x, None);
                assert!(found[..17].iter().all(|x| !x.is_finite()), "{kind:?} {bad}");
                assert!(found[17..].iter().all(|x| x.is_finite()), "{kind:?} {bad}");
            }
        }
    }
}

#[test]
fn tiny_and_huge_activations_are_quantised_without_overflow() {
    let q8 = tensor(WeightType::Q8_0, 16, 32, None);
    let weight = weight(&q8).expect("a weight");
    for size in [0.0, 1e-45, 1e-38, 1e-31, 1e-29, 1.0, 1e30] {
        let x: Vec<f32> = inputs(1, 32).iter().map(|x| x * size).collect();
        let fast = product(Tier::portable(), 1, &weight, &x, None);
        for &tier in Tier::available() {
            assert_eq!(fast, product(tier, 1, &weight, &x, None), "{size} {tier:?}");
        }
        assert!(fast.iter().all(|x| x.is_finite()), "{size}");
    }
}

#[test]
fn converted_rows_are_as_near_as_their_type_holds() {
    let pool = Cpu::new(2).expect("threads").pool;
    let plain = tensor(WeightType::F32, 11, 512, None);
    let row = |weight: &Weight, row: usize| {
        let mut out = vec![0.0; 512];
        weight.row(row, &mut out);
        out
    };
    let exact = weight(&plain).expect("a weight");
    // Of the spread of even numbers on -1..1, 0.577: a step of Q8_0 is 1/127, of Q6_K about 1/31, of
    // Q4_K about 2/15; errors are even on half a step to both sides.
    for (kind, most) in [
        (WeightType::F32, 1e-9),
        (WeightType::F16, 3e-4),
        (WeightType::BF16, 3e-3),
        (WeightType::Q8_0, 0.005),
        (WeightType::Q6_K, 0.02),
        (WeightType::Q4_K, 0.08),
    ] {
        let converted = Weight::converted(&pool, &plain, kind, None).expect("a weight");
        let (mut off, mut all) = (0.0, 0.0);
        for r in 0..11 {
            for (a, b) in row(&exact, r).iter().zip(row(&converted, r)) {
                off += f64::from((a - b) * (a - b));
                all += f64::from(a * a);
            }
        }
        assert!((off / all).sqrt() <= most, "{kind:?}: {}", (off / all).sqrt());
    }
    // Added in the order of ranks: W + up₀ᵀ down₀ + up₁ᵀ down₁.
    let (down, up) = (inputs(2, 512), inputs(2, 11));
    let added = crate::device::Added { down: &down, up: &up };
    let changed = Weight::converted(&pool, &plain, WeightType::F32, Some(added)).expect("a weight");
    for r in 0..11 {
        for (k, (was, is)) in row(&exact, r).iter().zip(row(&changed, r)).enumerate() {
            let wanted = was + up[r] * down[k] + up[11 + r] * down[512 + k];
            assert!((wanted - is).abs() < 1e-5, "row {r}, column {k}");
        }
    }
}

#[test]
fn a_tensor_that_is_no_matrix_of_whole_blocks_is_refused() {
    let mut vector = tensor(WeightType::F32, 4, 8, None);
    vector.shape = vec![32];
    assert!(matches!(weight(&vector), Err(DeviceError::Weight { .. })));
    let mut cut = tensor(WeightType::Q4_0, 3, 32, None);
    cut.shape = vec![2, 48];
    assert!(matches!(weight(&cut), Err(DeviceError::Weight { .. })));
    cut.shape = vec![4, 32];
    assert!(matches!(weight(&cut), Err(DeviceError::Weight { .. })));
}

#[test]
fn rotations_are_those_of_f64_far_out() {
    let speeds: Vec<f64> = (0..32).map(|pair| 1e5f64.powf(-2.0 * pair as f64 / 64.0)).collect();
    for scale in [1.0, 1.25] {
        let spec = RopeSpec { speeds: &speeds, scale, pairing: Pairing::Half, positions: 8192 };
        let rope = Rope::new(spec).expect("a table");
        for position in [0, 1, 1500, 8191] {
            for (pair, speed) in speeds.iter().enumerate() {
                let angle = position as f64 * speed;
                let at = position * 32 + pair;
                assert!((f64::from(rope.cos[at]) - scale * angle.cos()).abs() < 1e-7);
                assert!((f64::from(rope.sin[at]) - scale * angle.sin()).abs() < 1e-7);
            }
        }
    }
}

/// Rows of one sequence with random queries, keys and values, and the pages that they lie in.
struct Attending {
    layout: PageLayout,
    heads: usize,
    table: Vec<PageId>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

const POSITIONS: usize = 43;

impl Attending {
    fn new(head_dim: usize, group: usize, kv: KvType) -> Self {
        let layout = PageLayout { layers: 1, kv_heads: 2, head_dim, hidden: 4, kv };
        let numbers = |seed: u32, count: usize| -> Vec<f32> {
            let mut bytes = Bytes(seed);
            (0..count).map(|_| 2.0 * bytes.float()).collect()
        };
        let width = POSITIONS * 2 * head_dim;
        Self {
            layout,
            heads: 2 * group,
            table: vec![PageId(2), PageId(0), PageId(1)],
            q: numbers(1, width * group),
            k: numbers(2, width),
            v: numbers(3, width),
        }
    }

    /// Outputs and their blocks of all rows, `step` rows to a pass.
    fn run(&self, tier: Tier, threads: usize, step: usize) -> (Vec<f32>, Vec<i32>) {
        let mut cpu = Cpu::with_tier(threads, tier).expect("threads");
        let mut arena = cpu.arena(self.layout, 3).expect("an arena");
        // No rotation: the table of position 0 alone would be enough.
        let mut rope = Rope::new(RopeSpec {
            speeds: &vec![1.0; self.layout.head_dim / 2],
            scale: 1.0,
            pairing: Pairing::Half,
            positions: POSITIONS,
        })
        .expect("a table");
        rope.cos.fill(1.0);
        rope.sin.fill(0.0);
        let (width, kv_width) = (self.heads * self.layout.head_dim, 2 * self.layout.head_dim);
        let (mut outputs, mut words) = (Vec::new(), Vec::new());
        for first in (0..POSITIONS).step_by(step) {
            let positions: Vec<usize> = (first..POSITIONS.min(first + step)).collect();
            let count = positions.len();
            let rows = cpu
                .rows(RowsSpec {
                    tokens: &vec![0; count],
                    slots: &vec![0; count],
                    positions: &positions,
                    tables: &[&self.table],
                    adapters: &[],
                })
                .expect("rows");
            let part = |x: &[f32], width: usize| {
                Matrix::new(x[first * width..(first + count) * width].to_vec(), width)
            };
            let (mut q, mut k, v) =
                (part(&self.q, width), part(&self.k, kv_width), part(&self.v, kv_width));
            let mut out = Matrix::new(vec![f32::NAN; count * width], width);
            out.wanted.store(true, Ordering::Relaxed);
            cpu.rotate_and_store(&rows, &rope, 0, &mut q, &mut k, &v, &mut arena);
            cpu.attention(&rows, 0, &q, &arena, &mut out);
            outputs.extend_from_slice(out.rows(count));
            if let Some(blocks) = out.ready(count) {
                words.extend(blocks.iter().flat_map(|block| block.words));
            }
        }
        (outputs, words)
    }

    /// The outputs in f64, with keys and values as they are stored.
    fn exact(&self) -> Vec<f64> {
        let head_dim = self.layout.head_dim;
        let stored = |x: f32| match self.layout.kv {
            KvType::F16 => f16::from_f32(x).to_f64(),
            KvType::Bf16 => bf16::from_f32(x).to_f64(),
            KvType::F32 => f64::from(x),
        };
        let mut out = Vec::new();
        for row in 0..POSITIONS {
            for head in 0..self.heads {
                let q = &self.q[(row * self.heads + head) * head_dim..][..head_dim];
                let of = |x: &[f32], j: usize, i: usize| {
                    stored(x[(2 * j + head / (self.heads / 2)) * head_dim + i])
                };
                let score = |j: usize| {
                    let dot: f64 = (0..head_dim).map(|i| f64::from(q[i]) * of(&self.k, j, i)).sum();
                    (dot / (head_dim as f64).sqrt()).exp()
                };
                let weights: Vec<f64> = (0..=row).map(score).collect();
                let total: f64 = weights.iter().sum();
                out.extend((0..head_dim).map(|i| {
                    let sum: f64 =
                        weights.iter().enumerate().map(|(j, w)| w * of(&self.v, j, i)).sum();
                    sum / total
                }));
            }
        }
        out
    }
}

#[test]
fn attention_is_that_of_f64_and_the_same_bits_however_rows_are_cut() {
    for kv in [KvType::F16, KvType::Bf16, KvType::F32] {
        for head_dim in [6, 24, 64, 80] {
            for group in [1, 2, 3, 4, 5, 7] {
                let what = format!("{kv:?}, {head_dim} numbers, groups of {group}");
                let attending = Attending::new(head_dim, group, kv);
                let bits = |(out, words): (Vec<f32>, Vec<i32>)| {
                    (out.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), words)
                };
                let whole = attending.run(Tier::detect(), 2, POSITIONS);
                for (found, exact) in whole.0.iter().zip(attending.exact()) {
                    assert!((f64::from(*found) - exact).abs() < 1e-5, "{what}: {found} {exact}");
                }
                assert_eq!(whole.1.is_empty(), group * head_dim % 32 != 0);
                let whole = bits(whole);
                for (tier, threads, step) in [
                    (Tier::portable(), 1, POSITIONS),
                    (Tier::detect(), 1, 1),
                    (Tier::detect(), 3, 2),
                    (Tier::portable(), 2, 5),
                ] {
                    let cut = bits(attending.run(tier, threads, step));
                    assert!(cut == whole, "{what}: {tier:?}, {step} rows at once");
                }
            }
        }
    }
}

#[test]
fn bf16_is_rounded_as_by_its_library() {
    let mut bytes = Bytes(9);
    let mut x: Vec<f32> = (0..4096)
        .map(|_| f32::from_bits(u32::from_le_bytes([0; 4].map(|_: u8| bytes.next()))))
        .collect();
    x.extend([0.0, -0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45]);
    for tier in [Tier::portable(), Tier::detect()] {
        let mut found = vec![0u16; x.len()];
        float::round_bf16(tier, &x, &mut found);
        for (x, found) in x.iter().zip(found) {
            assert_eq!(found, bf16::from_f32(*x).to_bits(), "{x}");
        }
    }
}

#[test]
fn rows_that_were_quantised_as_they_were_written_give_the_same_products() {
    // The second product finds the blocks ready, that of a matrix filled by hand does not.
    let tensor = tensor(WeightType::Q4_1, 40, 64, None);
    let weight = weight(&tensor).expect("a weight");
    let mut cpu = Cpu::new(2).expect("threads");
    let positions: Vec<usize> = (0..9).collect();
    let rows = cpu
        .rows(RowsSpec {
            tokens: &[0; 9],
            slots: &[0; 9],
            positions: &positions,
            tables: &[&[PageId(0)]],
            adapters: &[],
        })
        .expect("rows");
    let mut stream = Matrix::new(inputs(9, 64), 64);
    let norm = Matrix::new(vec![0.75; 64], 64);
    let mut normed = Matrix::new(vec![0.0; 9 * 64], 64);
    let mut products = Vec::new();
    for ready in [false, true] {
        cpu.add_rms_norm(&rows, &mut stream, None, &norm, 1e-5, &mut normed);
        assert_eq!(normed.ready, ready);
        let mut out = Matrix::new(vec![0.0; 9 * 40], 40);
        let mut by_hand = Matrix::new(vec![0.0; 9 * 40], 40);
        let copy = Matrix::new(normed.rows(9).to_vec(), 64);
        cpu.linear(&rows, &normed, &mut [Product { weight: &weight, bias: None, out: &mut out }]);
        cpu.linear(&rows, &copy, &mut [Product { weight: &weight, bias: None, out: &mut by_hand }]);
        assert_eq!(out.data, by_hand.data);
        products.push(out.data);
    }
    assert_eq!(products[0], products[1]);
    normed.rows_mut(9)[0] += 1.0;
    assert!(normed.ready(9).is_none(), "blocks of rows that were changed since");
}
