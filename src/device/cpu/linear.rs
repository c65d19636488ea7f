//! Weights in memory and products with them, divided over threads by outputs, never inside a sum.

use super::arena::zeroed;
use super::convert::{Converter, row_bytes};
use super::dense::{self, Plain, for_plain};
use super::disjoint::Disjoint;
#[cfg(target_arch = "x86_64")]
use super::lanes::Form;
use super::lanes::{Lanes, Tier, tiered};
use super::panels::{self, Unpacked};
use super::pool::Pool;
use super::quantised::{self, Activations, BLOCK, BlockDot, Format, PANEL, for_format};
#[cfg(target_arch = "x86_64")]
use super::wide;
use crate::device::{Added, DeviceError};
use crate::store::{Tensor, WeightType};
use memmap2::MmapMut;
use std::borrow::Cow;
use std::ops::Range;

/// A matrix `[outputs, inputs]`.
pub struct Weight {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    kind: WeightType,
    store: Store,
}

enum Store {
    /// Rows as they lie in the mapped file.
    Mapped(Tensor),
    /// Rows of a plain type, as a file would have them.
    Plain(MmapMut),
    /// Panels of eight rows (`quantised`).
    Panels(MmapMut),
}

/// Gives the bytes of a range of rows as a file has them; ranges are whole panels but for the last.
type RowsOf<'a, 'f> = &'a (dyn Fn(Range<usize>) -> Cow<'f, [u8]> + Sync);

impl Weight {
    /// Bytes that a matrix takes beside its mapped file: whole panels of the block formats, nothing
    /// for the plain types, which stay mapped.
    pub fn held_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize {
        let blocks = inputs / kind.block_len();
        outputs.div_ceil(PANEL) * for_format!(kind, panel_bytes[](blocks), 0)
    }

    /// Bytes that a matrix takes that was converted to `kind`.
    pub fn converted_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize {
        match kind.block_len() {
            1 => outputs.next_multiple_of(PANEL) * inputs * kind.block_bytes(),
            _ => Self::held_bytes(kind, outputs, inputs),
        }
    }

    /// Takes a matrix from its file: plain types stay mapped, block formats are interleaved.
    pub(super) fn new(pool: &Pool, tensor: &Tensor) -> Result<Self, DeviceError> {
        let (outputs, inputs) = shape(tensor)?;
        let kind = tensor.kind;
        if kind.block_len() == 1 {
            return Ok(Self { outputs, inputs, kind, store: Store::Mapped(tensor.clone()) });
        }
        let (file, row_bytes) = (tensor.bytes(), row_bytes(kind, inputs));
        let rows =
            |rows: Range<usize>| Cow::Borrowed(&file[rows.start * row_bytes..rows.end * row_bytes]);
        Self::copied(pool, kind, outputs, inputs, &rows)
    }

    /// Takes a matrix from its file and holds it as another type, or with something added.
    pub(super) fn converted(
        pool: &Pool,
        tensor: &Tensor,
        kind: WeightType,
        added: Option<Added<'_>>,
    ) -> Result<Self, DeviceError> {
        let (outputs, inputs) = shape(tensor)?;
        if inputs % kind.block_len() != 0 {
            return Err(refused(
                tensor,
                format!("rows of {inputs} are not whole blocks of {kind:?}"),
            ));
        }
        let converter = Converter::new(tensor, inputs, kind, added);
        let rows = |rows: Range<usize>| Cow::Owned(converter.rows(rows));
        let weight = Self::copied(pool, kind, outputs, inputs, &rows)?;
        converter.finish()?;
        Ok(weight)
    }

    /// A matrix in memory of its own.
    fn copied(
        pool: &Pool,
        kind: WeightType,
        outputs: usize,
        inputs: usize,
        rows: RowsOf<'_, '_>,
    ) -> Result<Self, DeviceError> {
        let store = match kind.block_len() {
            1 => Store::Plain(copy_all(pool, rows, outputs, row_bytes(kind, inputs))?),
            block_len => Store::Panels(for_format!(
                kind,
                interleave_all[](pool, rows, outputs, inputs / block_len),
                unreachable!("the plain types went the other way")
            )?),
        };
        Ok(Self { outputs, inputs, kind, store })
    }

    pub(super) fn is_quantised(&self) -> bool {
        matches!(self.store, Store::Panels(_))
    }

    /// One row as f32, `[inputs]`.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        let plain = |all: &[u8], out: &mut [f32]| {
            let bytes = row_bytes(self.kind, self.inputs);
            dense::widen_kind(self.kind, &all[row * bytes..(row + 1) * bytes], out);
        };
        match &self.store {
            Store::Mapped(tensor) => plain(tensor.bytes(), out),
            Store::Plain(bytes) => plain(bytes, out),
            Store::Panels(panels) => for_format!(
                self.kind,
                unpack[](panels, row, out),
                unreachable!("the plain types went the other way")
            ),
        }
    }

    pub(super) fn kind(&self) -> WeightType {
        self.kind
    }

    /// Groups of eight outputs.
    fn units(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }
}

fn unpack<F: Format>(panels: &[u8], row: usize, out: &mut [f32]) {
    panels::unpack_row::<F>(panels, row, out);
}

fn panel_bytes<F: Format>(blocks: usize) -> usize {
    blocks * F::PANEL_SIZE
}

/// Outputs and inputs of a tensor that is a matrix of whole rows.
fn shape(tensor: &Tensor) -> Result<(usize, usize), DeviceError> {
    let [outputs, inputs] = tensor.shape[..] else {
        let what = format!("a matrix was expected, its shape is {:?}", tensor.shape);
        return Err(refused(tensor, what));
    };
    let kind = tensor.kind;
    if inputs % kind.block_len() != 0 {
        return Err(refused(tensor, format!("rows of {inputs} are not whole blocks of {kind:?}")));
    }
    let (row, found) = (row_bytes(kind, inputs), tensor.bytes().len());
    if outputs.checked_mul(row) != Some(found) {
        let what = format!("{found} bytes do not hold {outputs} rows of {row} bytes");
        return Err(refused(tensor, what));
    }
    Ok((outputs, inputs))
}

fn refused(tensor: &Tensor, what: String) -> DeviceError {
    DeviceError::Weight { tensor: tensor.name.clone(), what }
}

/// Fills `units` parts of `size` bytes in parallel, as many a task as make up about a megabyte.
fn fill_all(
    pool: &Pool,
    units: usize,
    size: usize,
    fill: impl Fn(usize, &mut [u8]) + Sync,
) -> Result<MmapMut, DeviceError> {
    let bytes = units.checked_mul(size).ok_or(DeviceError::TooLarge { what: "a weight" })?;
    let mut map = zeroed(bytes, "weights")?;
    let out = Disjoint::new(&mut map, units, size);
    let step = (1usize << 20).div_ceil(size.max(1));
    pool.run(units.div_ceil(step), &|task| {
        for unit in (task * step..units).take(step) {
            // SAFETY: every unit is in exactly one task.
            fill(unit, unsafe { out.part(unit, 0, size) });
        }
    });
    Ok(map)
}

/// Interleaves in parallel: a panel is made of eight rows of the file, of `blocks` blocks each.
fn interleave_all<F: Format + Unpacked>(
    pool: &Pool,
    rows: RowsOf<'_, '_>,
    outputs: usize,
    blocks: usize,
) -> Result<MmapMut, DeviceError> {
    fill_all(pool, outputs.div_ceil(PANEL), panel_bytes::<F>(blocks), |unit, out| {
        let rows = rows(unit * PANEL..outputs.min((unit + 1) * PANEL));
        panels::interleave::<F>(&rows, blocks, out);
    })
}

/// Copies rows in parallel, eight at a time.
fn copy_all(
    pool: &Pool,
    rows: RowsOf<'_, '_>,
    outputs: usize,
    row_bytes: usize,
) -> Result<MmapMut, DeviceError> {
    fill_all(pool, outputs.div_ceil(PANEL), PANEL * row_bytes, |unit, out| {
        let rows = rows(unit * PANEL..outputs.min((unit + 1) * PANEL));
        out[..rows.len()].copy_from_slice(&rows);
    })
}

/// One product: a weight, its bias, and where its outputs go.
pub(super) struct Job<'a> {
    pub weight: &'a Weight,
    pub bias: Option<&'a [f32]>,
    pub out: Disjoint<'a, f32>,
}

/// The shared input of several products.
pub(super) struct Input<'a> {
    pub rows: usize,
    /// `[rows][inputs]`
    pub plain: &'a [f32],
    /// The same rows quantised, `[rows][inputs / 32]`, where a weight asks for it.
    pub quantised: &'a [Activations],
}

/// Multiply-adds that are worth a task of their own.
const TASK: usize = 1 << 15;
/// Tasks for each thread, where there is work for so many: the last ones even out.
const TASKS: usize = 6;
/// Input rows that pass a group of outputs together: their blocks stay in the second-level cache.
const ROWS: usize = 128;

/// Computes all outputs of all jobs.
pub(super) fn multiply(tier: Tier, pool: &Pool, input: &Input<'_>, jobs: &[Job<'_>]) {
    let all: usize = jobs.iter().map(|job| job.weight.units()).sum();
    let mut tasks = Vec::new();
    for job in jobs {
        let (units, cost) = (job.weight.units(), PANEL * job.weight.inputs * input.rows);
        // Even, since some forms take two units at once.
        let step = (TASK.div_ceil(cost.max(1))).max(all.div_ceil(TASKS * pool.threads()));
        let step = step.next_multiple_of(2);
        for from in (0..units).step_by(step) {
            tasks.push((job, from..(from + step).min(units)));
        }
    }
    pool.run(tasks.len(), &|task| {
        let (job, units) = &tasks[task];
        match &job.weight.store {
            #[cfg(target_arch = "x86_64")]
            Store::Panels(panels) if tier.0 == Form::Avx512 => {
                // SAFETY: `Form::Avx512` is only made after its features were detected.
                unsafe { wide::panel_task(panels, job, input, units.clone()) }
            }
            Store::Panels(panels) => panel_task(tier, panels, job, input, units.clone()),
            Store::Mapped(tensor) => plain_task(tier, tensor.bytes(), job, input, units.clone()),
            Store::Plain(bytes) => plain_task(tier, bytes, job, input, units.clone()),
        }
    });
}

/// Adds the bias to eight outputs of a row and writes those that exist.
///
/// # Safety
/// No other thread may write the unit's outputs.
#[inline(always)]
pub(super) unsafe fn write_unit<V: Lanes>(sums: V, job: &Job<'_>, row: usize, unit: usize) {
    let from = unit * PANEL;
    let count = (job.weight.outputs - from).min(PANEL);
    let sums = match job.bias {
        Some(bias) => sums.add(V::load_tail(&bias[from..from + count])),
        None => sums,
    };
    // SAFETY: as the caller promises.
    let out = unsafe { job.out.part(row, from, count) };
    match out.as_mut_array::<8>() {
        Some(out) => sums.store(out),
        None => sums.store_tail(out),
    }
}

tiered! {
    /// The units of a job whose weight lies in panels.
    fn panel_task(panels: &[u8], job: &Job<'_>, input: &Input<'_>, units: Range<usize>)
        = panel_body
}

#[inline(always)]
fn panel_body<V: BlockDot>(panels: &[u8], job: &Job<'_>, input: &Input<'_>, units: Range<usize>) {
    for_format!(
        job.weight.kind,
        panel_units[V,](panels, job, input, units),
        unreachable!("a plain type is never in panels")
    );
}

#[inline(always)]
fn panel_units<V: BlockDot, F: Format>(
    panels: &[u8],
    job: &Job<'_>,
    input: &Input<'_>,
    units: Range<usize>,
) {
    for first in (0..input.rows).step_by(ROWS) {
        let rows = first..(first + ROWS).min(input.rows);
        for unit in units.clone() {
            one_panel::<V, F>(panels, job, input, &rows, unit);
        }
    }
}

/// One panel with a range of rows, four rows at a time.
#[inline(always)]
pub(super) fn one_panel<V: BlockDot, F: Format>(
    panels: &[u8],
    job: &Job<'_>,
    input: &Input<'_>,
    rows: &Range<usize>,
    unit: usize,
) {
    let blocks = job.weight.inputs / BLOCK;
    let panels = &panels[unit * (blocks / F::SUBS) * F::PANEL_SIZE..];
    let mut row = rows.start;
    macro_rules! rows_at_once {
        ($count:literal) => {{
            // The first rows bring the panel into the cache.
            let (acts, ahead) = (input.quantised, row == 0);
            let sums = quantised::panel_rows::<V, F, $count>(panels, acts, row, blocks, ahead);
            for (t, sums) in sums.into_iter().enumerate() {
                // SAFETY: every unit of every job is in exactly one task.
                unsafe { write_unit(sums, job, row + t, unit) };
            }
            row += $count;
        }};
    }
    while row + 4 <= rows.end {
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

tiered! {
    /// The units of a job whose weight is plain.
    fn plain_task(bytes: &[u8], job: &Job<'_>, input: &Input<'_>, units: Range<usize>)
        = plain_body
}

#[inline(always)]
fn plain_body<V: Lanes>(bytes: &[u8], job: &Job<'_>, input: &Input<'_>, units: Range<usize>) {
    for_plain!(
        job.weight.kind,
        plain_units[V,](bytes, job, input, units),
        unreachable!("a block format is always in panels")
    );
}

#[inline(always)]
fn plain_units<V: Lanes, P: Plain>(
    bytes: &[u8],
    job: &Job<'_>,
    input: &Input<'_>,
    units: Range<usize>,
) {
    let columns = job.weight.inputs;
    if input.rows < 4 || P::SIZE == 4 {
        for unit in units {
            let from = unit * PANEL * columns * P::SIZE;
            let to = bytes.len().min(from + PANEL * columns * P::SIZE);
            plain_unit::<V, P>(&bytes[from..to], job, input, unit);
        }
        return;
    }
    // Many rows: each weight is widened once and then used as f32.
    let mut wide = vec![0.0f32; PANEL * columns];
    for unit in units {
        let from = unit * PANEL * columns * P::SIZE;
        let count = (job.weight.outputs - unit * PANEL).min(PANEL) * columns;
        let wide = &mut wide[..count];
        dense::widen_eights::<V, P>(&bytes[from..from + count * P::SIZE], wide);
        plain_unit::<V, dense::F32>(bytemuck::cast_slice(wide), job, input, unit);
    }
}

/// Up to eight outputs of a plain weight with all rows, in tiles of four outputs and two rows.
#[inline(always)]
fn plain_unit<V: Lanes, P: Plain>(weights: &[u8], job: &Job<'_>, input: &Input<'_>, unit: usize) {
    let columns = job.weight.inputs;
    let count = (job.weight.outputs - unit * PANEL).min(PANEL);
    let x = |row: usize| &input.plain[row * columns..(row + 1) * columns];
    // Outputs that do not exist repeat the last one, and are not written.
    let w = |m: usize| {
        let from = m.min(count - 1) * columns * P::SIZE;
        &weights[from..from + columns * P::SIZE]
    };
    let mut row = 0;
    while row < input.rows {
        let pair = row + 2 <= input.rows;
        let mut sums = [[0.0; PANEL]; 2];
        for half in 0..count.div_ceil(4) {
            let w4: [&[u8]; 4] = std::array::from_fn(|m| w(4 * half + m));
            if pair {
                let tile = dense::tile::<V, P, 4, 2>(w4, [x(row), x(row + 1)]);
                for (m, [a, b]) in tile.into_iter().enumerate() {
                    sums[0][4 * half + m] = a;
                    sums[1][4 * half + m] = b;
                }
            } else {
                let tile = dense::tile::<V, P, 4, 1>(w4, [x(row)]);
                for (m, [a]) in tile.into_iter().enumerate() {
                    sums[0][4 * half + m] = a;
                }
            }
        }
        for sums in &sums[..if pair { 2 } else { 1 }] {
            // SAFETY: every unit of every job is in exactly one task.
            unsafe { write_unit(V::load(sums), job, row, unit) };
            row += 1;
        }
    }
}
