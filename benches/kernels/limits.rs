//! What the machine can do at most.

use std::time::Instant;

use serde_json::{Value, json};

use crate::measure::stop;

pub struct Limits {
    /// Reading a large buffer once with all threads.
    pub read_gb_s: f64,
    /// 8-bit multiply-adds from registers with all threads; 0 where the instruction is not there.
    pub int8_gmac_s: f64,
}

impl Limits {
    pub fn facts(&self) -> Value {
        json!({ "read_gb_s": self.read_gb_s, "int8_gmac_s": self.int8_gmac_s })
    }
}

/// The best of several tries: a limit is what was possible.
pub fn measure(threads: usize) -> Limits {
    let best = |of: &dyn Fn(usize) -> f64| (0..5).map(|_| of(threads)).fold(0.0, f64::max);
    Limits { read_gb_s: best(&read), int8_gmac_s: best(&multiply_add) }
}

/// Runs `work` on every thread at once; seconds of the slowest.
fn on_each(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let start = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    let begun = Instant::now();
                    work(thread);
                    begun.elapsed().as_secs_f64()
                })
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
    })
}

fn read(threads: usize) -> f64 {
    // About as much as a step of the default model reads: some of it stays in the last cache.
    const BYTES: usize = 96 << 20;
    let mut map = memmap2::MmapMut::map_anon(BYTES).unwrap_or_else(|e| stop(&e.to_string()));
    // As the weights lie; where the system refuses, ordinary pages do.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    map.fill(1);
    let share = BYTES / threads / 128 * 128;
    let time = on_each(threads, |thread| {
        let mut sums = [0u64; 16];
        let bytes = &map[thread * share..(thread + 1) * share];
        for (i, lines) in bytes.as_chunks::<128>().0.iter().enumerate() {
            if let Some(ahead) = bytes.get(128 * i + 1024..) {
                ask_for(ahead);
            }
            for (sum, x) in sums.iter_mut().zip(lines.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*x));
            }
        }
        std::hint::black_box(sums);
    });
    (share * threads) as f64 / time / 1e9
}

/// Asks for the first two cache lines of some bytes.
fn ask_for(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64).take(2) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every such processor has SSE, and a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

#[cfg(target_arch = "x86_64")]
fn multiply_add(threads: usize) -> f64 {
    const TURNS: usize = 4_000_000;
    if !is_x86_feature_detected!("avx2") {
        return 0.0;
    }
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
        // SAFETY: both were detected.
        let time = on_each(threads, |_| unsafe { wide_registers(TURNS) });
        // Twelve products of 64 bytes a turn.
        return (threads * TURNS * 12 * 64) as f64 / time / 1e9;
    }
    // SAFETY: AVX2 was detected.
    let time = on_each(threads, |_| unsafe { registers(TURNS) });
    // Eight products of 32 bytes a turn.
    (threads * TURNS * 8 * 32) as f64 / time / 1e9
}

#[cfg(not(target_arch = "x86_64"))]
fn multiply_add(_: usize) -> f64 {
    0.0
}

/// Eight products in 16 bits and their sums, nothing else: as the kernels' inner loop, without loads.
///
/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn registers(turns: usize) {
    // SAFETY: only vector registers are written, and they are named.
    unsafe {
        std::arch::asm!(
            "2:",
            "vpmaddubsw {t0}, {w}, {a}",
            "vpaddw {s0}, {s0}, {t0}",
            "vpmaddubsw {t1}, {w}, {a}",
            "vpaddw {s1}, {s1}, {t1}",
            "vpmaddubsw {t0}, {w}, {a}",
            "vpaddw {s2}, {s2}, {t0}",
            "vpmaddubsw {t1}, {w}, {a}",
            "vpaddw {s3}, {s3}, {t1}",
            "vpmaddubsw {t0}, {w}, {a}",
            "vpaddw {s4}, {s4}, {t0}",
            "vpmaddubsw {t1}, {w}, {a}",
            "vpaddw {s5}, {s5}, {t1}",
            "vpmaddubsw {t0}, {w}, {a}",
            "vpaddw {s6}, {s6}, {t0}",
            "vpmaddubsw {t1}, {w}, {a}",
            "vpaddw {s7}, {s7}, {t1}",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) turns => _,
            w = out(ymm_reg) _,
            a = out(ymm_reg) _,
            t0 = out(ymm_reg) _,
            t1 = out(ymm_reg) _,
            s0 = out(ymm_reg) _,
            s1 = out(ymm_reg) _,
            s2 = out(ymm_reg) _,
            s3 = out(ymm_reg) _,
            s4 = out(ymm_reg) _,
            s5 = out(ymm_reg) _,
            s6 = out(ymm_reg) _,
            s7 = out(ymm_reg) _,
            options(nomem, nostack),
        );
    }
}

/// Twelve products of 8 bits with their sums in 32, nothing else; as many as hide the instruction's five
/// cycles on two ports.
///
/// # Safety
/// The processor has AVX-512 with VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn wide_registers(turns: usize) {
    // SAFETY: only vector registers are written, and they are named.
    unsafe {
        std::arch::asm!(
            "2:",
            "vpdpbusd {s0}, {w}, {a}",
            "vpdpbusd {s1}, {w}, {a}",
            "vpdpbusd {s2}, {w}, {a}",
            "vpdpbusd {s3}, {w}, {a}",
            "vpdpbusd {s4}, {w}, {a}",
            "vpdpbusd {s5}, {w}, {a}",
            "vpdpbusd {s6}, {w}, {a}",
            "vpdpbusd {s7}, {w}, {a}",
            "vpdpbusd {s8}, {w}, {a}",
            "vpdpbusd {s9}, {w}, {a}",
            "vpdpbusd {s10}, {w}, {a}",
            "vpdpbusd {s11}, {w}, {a}",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) turns => _,
            w = out(zmm_reg) _,
            a = out(zmm_reg) _,
            s0 = out(zmm_reg) _,
            s1 = out(zmm_reg) _,
            s2 = out(zmm_reg) _,
            s3 = out(zmm_reg) _,
            s4 = out(zmm_reg) _,
            s5 = out(zmm_reg) _,
            s6 = out(zmm_reg) _,
            s7 = out(zmm_reg) _,
            s8 = out(zmm_reg) _,
            s9 = out(zmm_reg) _,
            s10 = out(zmm_reg) _,
            s11 = out(zmm_reg) _,
            options(nomem, nostack),
        );
    }
}
