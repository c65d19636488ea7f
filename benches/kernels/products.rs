//! Products with every block format, from one row to many: as GB/s of weights beside the read
//! bandwidth, and as multiply-adds beside the peak.

use std::path::Path;

use serde_json::{Value, json};
use unsay::device::cpu::Cpu;
use unsay::device::{Ops, PageId, Product, RowsSpec};
use unsay::store::{Gguf, WeightType};

use crate::limits::Limits;
use crate::measure::stop;
use crate::seconds;

/// A matrix whose weights do not fit the caches: 64 MB in four bits.
const OUTPUTS: usize = 32_768;
const INPUTS: usize = 4096;
const ROUNDS: usize = 5;

const KINDS: [(WeightType, u32); 10] = [
    (WeightType::Q4_0, 2),
    (WeightType::Q4_1, 3),
    (WeightType::Q5_0, 6),
    (WeightType::Q5_1, 7),
    (WeightType::Q8_0, 8),
    (WeightType::Q2_K, 10),
    (WeightType::Q3_K, 11),
    (WeightType::Q4_K, 12),
    (WeightType::Q5_K, 13),
    (WeightType::Q6_K, 14),
];

/// A GGUF file with one matrix, each block of which is made of its number.
fn file(path: &Path, kind: WeightType, code: u32) -> std::io::Result<()> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(b"w");
    bytes.extend(2u32.to_le_bytes());
    bytes.extend((INPUTS as u64).to_le_bytes());
    bytes.extend((OUTPUTS as u64).to_le_bytes());
    bytes.extend(code.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    let blocks = OUTPUTS * INPUTS / kind.block_len();
    let mut block = vec![0u8; kind.block_bytes()];
    for number in 0..blocks {
        // Any bytes below 0x40 are a block of finite numbers.
        for (i, byte) in block.iter_mut().enumerate() {
            *byte = (number as u32).wrapping_mul(2_654_435_761).rotate_left(i as u32) as u8 & 0x3F;
        }
        bytes.extend(&block);
    }
    std::fs::write(path, bytes)
}

pub fn measure(threads: usize, limits: &Limits) -> Value {
    let folder = tempfile::tempdir().unwrap_or_else(|e| stop(&e.to_string()));
    let mut facts = json!({
        "shape": [OUTPUTS, INPUTS],
        "note": "GB/s are those of the weights in the file; median of the rounds and the best",
    });
    for (kind, code) in KINDS {
        let path = folder.path().join("weights.gguf");
        file(&path, kind, code).unwrap_or_else(|e| stop(&e.to_string()));
        let gguf = Gguf::open(&path).unwrap_or_else(|e| stop(&e.to_string()));
        let Some(tensor) = gguf.tensor("w") else { stop("the file has no matrix") };
        let mut cpu = Cpu::new(threads).unwrap_or_else(|e| stop(&e.to_string()));
        let weight = cpu.weight(&tensor).unwrap_or_else(|e| stop(&e.to_string()));
        let size = (OUTPUTS * INPUTS / kind.block_len() * kind.block_bytes()) as f64;
        for count in [1usize, 2, 4, 8, 16, 64] {
            let (median, least) = product(&mut cpu, &weight, count);
            let macs = (OUTPUTS * INPUTS * count) as f64;
            let name = format!("{kind:?} x {count}");
            println!(
                "{name}: {:.1} GB/s ({:.2} of reading), {:.0} G/s ({:.2} of the peak)",
                size / least / 1e9,
                size / least / 1e9 / limits.read_gb_s,
                macs / least / 1e9,
                macs / least / 1e9 / limits.int8_gmac_s,
            );
            facts[name] = json!({
                "gb_s": size / median / 1e9, "best_gb_s": size / least / 1e9,
                "gmac_s": macs / median / 1e9, "best_gmac_s": macs / least / 1e9,
            });
        }
    }
    facts
}

fn product(cpu: &mut Cpu, weight: &<Cpu as Ops>::Weight, count: usize) -> (f64, f64) {
    let ids = vec![0u32; count];
    let slots = vec![0usize; count];
    let positions: Vec<usize> = (0..count).collect();
    let table = vec![PageId(0); count.div_ceil(16)];
    let spec = RowsSpec {
        tokens: &ids,
        slots: &slots,
        positions: &positions,
        tables: &[&table[..]],
        adapters: &[],
    };
    let rows = cpu.rows(spec).unwrap_or_else(|e| stop(&e.to_string()));
    let buffer =
        |cpu: &Cpu, width| cpu.buffer(count, width).unwrap_or_else(|e| stop(&e.to_string()));
    let (input, mut out) = (buffer(cpu, INPUTS), buffer(cpu, OUTPUTS));
    seconds(ROUNDS, || {
        cpu.linear(&rows, &input, &mut [Product { weight, bias: None, out: &mut out }]);
    })
}
