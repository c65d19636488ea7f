//! Matrices that are held otherwise than their file has them: in another type, or with a low-rank
//! matrix added. Eight rows at a time, so that no second copy of a matrix is made.

use super::dense;
use super::panels::{self, Unpacked};
use super::quantised::{Format, PANEL, for_format};
use crate::device::{Added, DeviceError};
use crate::store::{Tensor, WeightType};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result as CandleResult};
use half::{bf16, f16};
use std::ops::Range;
use std::sync::Mutex;

/// A type as candle calls it, which quantises to it.
pub(crate) fn ggml_type(kind: WeightType) -> GgmlDType {
    match kind {
        WeightType::F32 => GgmlDType::F32,
        WeightType::F16 => GgmlDType::F16,
        WeightType::BF16 => GgmlDType::BF16,
        WeightType::Q4_0 => GgmlDType::Q4_0,
        WeightType::Q4_1 => GgmlDType::Q4_1,
        WeightType::Q5_0 => GgmlDType::Q5_0,
        WeightType::Q5_1 => GgmlDType::Q5_1,
        WeightType::Q8_0 => GgmlDType::Q8_0,
        WeightType::Q2_K => GgmlDType::Q2K,
        WeightType::Q3_K => GgmlDType::Q3K,
        WeightType::Q4_K => GgmlDType::Q4K,
        WeightType::Q5_K => GgmlDType::Q5K,
        WeightType::Q6_K => GgmlDType::Q6K,
    }
}

/// Reads rows of a matrix, adds what is added, and writes them in another type.
pub(super) struct Converter<'a> {
    tensor: &'a Tensor,
    inputs: usize,
    to: WeightType,
    added: Option<Added<'a>>,
    failed: Mutex<Option<String>>,
}

impl<'a> Converter<'a> {
    /// A converter of a matrix whose rows are `inputs` numbers, whole blocks of both types.
    pub(super) fn new(
        tensor: &'a Tensor,
        inputs: usize,
        to: WeightType,
        added: Option<Added<'a>>,
    ) -> Self {
        Self { tensor, inputs, to, added, failed: Mutex::new(None) }
    }

    /// The bytes of one panel's rows, as a file of the new type would have them.
    pub(super) fn rows(&self, rows: Range<usize>) -> Vec<u8> {
        let mut numbers = vec![0.0; rows.len() * self.inputs];
        self.read(rows.start, &mut numbers);
        if let Some(added) = &self.added {
            self.add(added, rows.start, &mut numbers);
        }
        let bad = numbers.iter().position(|x| !x.is_finite());
        let written = match bad {
            None => write(self.to, &numbers),
            Some(at) => Err(format!("row {} holds {}", rows.start + at / self.inputs, numbers[at])),
        };
        written.unwrap_or_else(|what| {
            *self.failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(what);
            vec![0; rows.len() * row_bytes(self.to, self.inputs)]
        })
    }

    /// What went wrong in any of the rows.
    pub(super) fn finish(self) -> Result<(), DeviceError> {
        match self.failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            None => Ok(()),
            Some(what) => Err(DeviceError::Weight {
                tensor: self.tensor.name.clone(),
                what: format!(
                    "cannot be converted to {:?}: {what}; fetch the model again",
                    self.to
                ),
            }),
        }
    }

    /// Rows from `first` on as f32.
    fn read(&self, first: usize, numbers: &mut [f32]) {
        let kind = self.tensor.kind;
        let bytes = row_bytes(kind, self.inputs);
        let count = numbers.len() / self.inputs;
        let file = &self.tensor.bytes()[first * bytes..(first + count) * bytes];
        for_format!(
            kind,
            unpack[](file, self.inputs, numbers),
            for (row, numbers) in file.chunks_exact(bytes).zip(numbers.chunks_exact_mut(self.inputs)) {
                dense::widen_kind(kind, row, numbers);
            }
        );
    }

    /// `numbers += upᵀ · down`, in the order of ranks.
    fn add(&self, added: &Added<'_>, first: usize, numbers: &mut [f32]) {
        let outputs = self.tensor.shape[0];
        for (row, numbers) in (first..).zip(numbers.chunks_exact_mut(self.inputs)) {
            let downs = added.down.chunks_exact(self.inputs);
            for (up, down) in added.up.chunks_exact(outputs).zip(downs) {
                for (number, down) in numbers.iter_mut().zip(down) {
                    *number = up[row].mul_add(*down, *number);
                }
            }
        }
    }
}

/// Bytes of a row in a file.
pub(super) fn row_bytes(kind: WeightType, inputs: usize) -> usize {
    inputs / kind.block_len() * kind.block_bytes()
}

/// Up to eight rows of a block format as f32.
fn unpack<F: Format + Unpacked>(file: &[u8], inputs: usize, numbers: &mut [f32]) {
    let blocks = file.len() / F::SIZE / (numbers.len() / inputs);
    let mut panel = vec![0; blocks * F::PANEL_SIZE];
    panels::interleave::<F>(file, blocks, &mut panel);
    for (row, numbers) in numbers.chunks_exact_mut(inputs).take(PANEL).enumerate() {
        panels::unpack_row::<F>(&panel, row, numbers);
    }
}

/// Numbers in a type, as a file has them.
fn write(kind: WeightType, numbers: &[f32]) -> Result<Vec<u8>, String> {
    let halves = |half: &dyn Fn(f32) -> (u16, bool)| {
        let mut bytes = Vec::with_capacity(2 * numbers.len());
        for number in numbers {
            match half(*number) {
                (bits, true) => bytes.extend(bits.to_le_bytes()),
                (_, false) => return Err(format!("{number} is beyond the type's range")),
            }
        }
        Ok(bytes)
    };
    match kind {
        WeightType::F32 => Ok(numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
        WeightType::F16 => halves(&|x| {
            let half = f16::from_f32(x);
            (half.to_bits(), half.is_finite())
        }),
        WeightType::BF16 => halves(&|x| {
            let half = bf16::from_f32(x);
            (half.to_bits(), half.is_finite())
        }),
        _ => quantise(kind, numbers).map_err(|error| error.to_string()),
    }
}

fn quantise(kind: WeightType, numbers: &[f32]) -> CandleResult<Vec<u8>> {
    let numbers = candle_core::Tensor::from_slice(numbers, numbers.len(), &Device::Cpu)?;
    Ok(QTensor::quantize(&numbers, ggml_type(kind))?.data()?.into_owned())
}
