//! Philox4x32-10, a counter-based generator of random bits: Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A pure function of counter and key, so
//! a draw depends on what it is for and never on what was drawn before.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four words at `counter` of the sequence named by `key`.
pub(super) fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut words = counter;
    let mut key = key;
    for _ in 0..ROUNDS {
        let left = u64::from(MULTIPLIERS[0]) * u64::from(words[0]);
        let right = u64::from(MULTIPLIERS[1]) * u64::from(words[2]);
        words = [
            high(right) ^ words[1] ^ key[0],
            low(right),
            high(left) ^ words[3] ^ key[1],
            low(left),
        ];
        key[0] = key[0].wrapping_add(KEY_STEPS[0]);
        key[1] = key[1].wrapping_add(KEY_STEPS[1]);
    }
    words
}

fn high(product: u64) -> u32 {
    (product >> 32) as u32
}

fn low(product: u64) -> u32 {
    product as u32
}

#[cfg(test)]
mod tests {
    use super::philox4x32;

    /// The published known answers of philox4x32 with 10 rounds (Random123's `kat_vectors`).
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (
                [0xffff_ffff; 4],
                [0xffff_ffff; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want, "counter {counter:x?}, key {key:x?}");
        }
    }
}
