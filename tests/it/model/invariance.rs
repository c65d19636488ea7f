//! What must not change an answer, bit for bit: how a sequence is cut, what runs beside it, the
//! threads, the form of the kernels, and where its pages lie.

use super::tiny::{KINDS, Numbers, Tiny};
use super::{load, load_on, logits, pages, rows};
use unsay::device::cpu::{Cpu, Tier};
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{Batch, Decoder, Row, Transformer};
use unsay::store::{ModelFiles, WeightType};

const KV: [KvType; 3] = [KvType::F16, KvType::F32, KvType::Bf16];
const PAGES: usize = 64;

fn models() -> Vec<(Tiny, KvType)> {
    KINDS
        .into_iter()
        .enumerate()
        .map(|(i, kind)| (Tiny::new(["llama", "qwen2", "qwen3"][i % 3], kind), KV[(i + i / 3) % 3]))
        .collect()
}

type Bits = Vec<Vec<u32>>;

/// The bits of the logits at every position of a sequence in `table`.
fn bits(model: &mut dyn Decoder, table: &[PageId], len: usize) -> Bits {
    let all: Vec<usize> = (0..len).collect();
    let logits = logits(model, table, &all);
    logits.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

fn forward(model: &mut dyn Decoder, rows: &[Row], tables: &[&[PageId]]) {
    model.forward(&Batch { rows, tables }).expect("a forward pass");
}

/// A sequence alone, in one pass, in the first pages.
fn alone(model: &mut dyn Decoder, ids: &[u32]) -> Bits {
    let table = pages(0, ids.len().div_ceil(16));
    forward(model, &rows(0, 0, ids), &[&table]);
    bits(model, &table, ids.len())
}

fn fresh(files: &ModelFiles, kv: KvType) -> Transformer<Cpu> {
    load(files, kv, PAGES)
}

#[test]
fn however_a_sequence_is_cut_its_bits_are_the_same() {
    for (tiny, kv) in models() {
        let (files, mut numbers) = (tiny.files(), Numbers(11));
        // Longer than the rows that pass the layers together.
        let len = if tiny.kind == WeightType::Q4_1 { 300 } else { 75 };
        let ids = numbers.ids(len, tiny.vocab);
        let whole = alone(&mut fresh(&files, kv), &ids);
        for most in [1, 5, 16, 33] {
            let mut model = fresh(&files, kv);
            let table = pages(0, len.div_ceil(16));
            let mut from = 0;
            while from < len {
                let to = len.min(from + 1 + numbers.below(most));
                forward(&mut model, &rows(0, from, &ids[from..to]), &[&table]);
                from = to;
            }
            assert!(bits(&mut model, &table, len) == whole, "pieces up to {most}: {tiny:?}");
        }
    }
}

#[test]
fn whatever_runs_beside_a_sequence_its_bits_are_the_same() {
    for (tiny, kv) in models() {
        let (files, mut numbers) = (tiny.files(), Numbers(12));
        let ids: Vec<Vec<u32>> =
            [40, 1, 17, 29].iter().map(|&len| numbers.ids(len, tiny.vocab)).collect();
        let expected: Vec<Bits> =
            ids.iter().map(|ids| alone(&mut fresh(&files, kv), ids)).collect();
        let tables: Vec<Vec<PageId>> = (0..4).map(|slot| pages(10 * slot, 3)).collect();
        let tables: Vec<&[PageId]> = tables.iter().map(Vec::as_slice).collect();
        let check = |model: &mut dyn Decoder, how: &str| {
            for (slot, ids) in ids.iter().enumerate() {
                let found = bits(model, tables[slot], ids.len());
                assert!(found == expected[slot], "slot {slot}, {how}: {tiny:?}");
            }
        };
        let mut model = fresh(&files, kv);
        let together: Vec<Row> =
            ids.iter().enumerate().flat_map(|(slot, ids)| rows(slot, 0, ids)).collect();
        forward(&mut model, &together, &tables);
        check(&mut model, "one behind the other");
        // Interleaved row by row, and cut into passes at random.
        let mut model = fresh(&files, kv);
        let mut mixed = together;
        mixed.sort_by_key(|row| (row.position, row.slot));
        while !mixed.is_empty() {
            let count = mixed.len().min(1 + numbers.below(30));
            forward(&mut model, &mixed[..count], &tables);
            mixed.drain(..count);
        }
        check(&mut model, "interleaved");
    }
}

#[test]
fn threads_and_the_form_of_the_kernels_change_no_bit() {
    for (tiny, kv) in models() {
        let (files, ids) = (tiny.files(), Numbers(13).ids(50, tiny.vocab));
        let on = |threads: usize, tier: Tier| {
            let cpu = Cpu::with_tier(threads, tier).expect("threads");
            alone(&mut load_on(cpu, &files, kv, PAGES), &ids)
        };
        let one = on(1, Tier::detect());
        for threads in [2, 3, 4] {
            assert!(on(threads, Tier::detect()) == one, "{threads} threads: {tiny:?}");
        }
        for &tier in Tier::available() {
            assert!(on(2, tier) == one, "{tier:?}: {tiny:?}");
        }
    }
}

#[test]
fn many_threads_change_no_bit_where_the_work_is_divided() {
    // Wide enough that every operation is given to several threads.
    let tiny = Tiny {
        hidden: 512,
        heads: 8,
        kv_heads: 4,
        head_dim: 64,
        ffn: 1024,
        vocab: 1000,
        ..Tiny::new("llama", WeightType::Q4_1)
    };
    let (files, ids) = (tiny.files(), Numbers(14).ids(130, tiny.vocab));
    let on = |threads| {
        let cpu = Cpu::new(threads).expect("threads");
        alone(&mut load_on(cpu, &files, KvType::F16, PAGES), &ids)
    };
    let one = on(1);
    for threads in [2, 3, 4] {
        assert!(on(threads) == one, "{threads} threads");
    }
}

#[test]
fn wherever_pages_lie_and_whatever_they_held_the_bits_are_the_same() {
    for (tiny, kv) in models() {
        let (files, mut numbers) = (tiny.files(), Numbers(15));
        let ids = numbers.ids(75, tiny.vocab);
        let expected = alone(&mut fresh(&files, kv), &ids);
        let mut model = fresh(&files, kv);
        // Every page holds something else first.
        let noise = numbers.ids(16 * PAGES, tiny.vocab);
        let everything = pages(0, PAGES);
        forward(&mut model, &rows(0, 0, &noise), &[&everything]);
        let table: Vec<PageId> = [41, 3, 60, 2, 17].map(PageId).to_vec();
        forward(&mut model, &rows(0, 0, &ids), &[&table]);
        assert!(bits(&mut model, &table, ids.len()) == expected, "{tiny:?}");
    }
}

#[test]
fn a_fork_that_copies_its_last_page_goes_on_as_a_fresh_sequence() {
    for (tiny, kv) in models() {
        let (files, mut numbers) = (tiny.files(), Numbers(16));
        let stem = numbers.ids(23, tiny.vocab);
        let ends = [numbers.ids(20, tiny.vocab), numbers.ids(9, tiny.vocab)];
        let mut model = fresh(&files, kv);
        let trunk = pages(5, 4);
        forward(&mut model, &rows(0, 0, &stem), &[&trunk]);
        // The first page is shared, the second, partly filled, is copied.
        model.copy_page(trunk[1], PageId(30));
        let branch = [trunk[0], PageId(30), PageId(31)];
        let mut both = rows(0, stem.len(), &ends[0]);
        both.extend(rows(1, stem.len(), &ends[1]));
        forward(&mut model, &both, &[&trunk, &branch]);
        for (table, end) in [(&trunk[..], &ends[0]), (&branch[..], &ends[1])] {
            let ids = [&stem[..], end].concat();
            let expected = alone(&mut fresh(&files, kv), &ids);
            assert!(bits(&mut model, table, ids.len()) == expected, "{tiny:?}");
        }
    }
}

#[test]
fn logits_of_one_position_and_of_many_are_the_same_bits() {
    for (tiny, kv) in models() {
        let (files, ids) = (tiny.files(), Numbers(17).ids(140, tiny.vocab));
        let mut model = fresh(&files, kv);
        let all = alone(&mut model, &ids);
        for position in [0, 3, 139] {
            let wanted = [HiddenAt { page: PageId(position / 16), offset: position as usize % 16 }];
            let mut out = vec![0.0; tiny.vocab];
            model.logits(&wanted, &mut out).expect("logits");
            let one: Vec<u32> = out.into_iter().map(f32::to_bits).collect();
            assert!(one == all[position as usize], "{tiny:?}");
        }
    }
}
