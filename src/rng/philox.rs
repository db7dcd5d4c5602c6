//! Philox-4x32-10 (Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3").

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four independent words for a counter and a key.
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for round in 0..10 {
        if round > 0 {
            k = [k[0].wrapping_add(KEY_STEPS[0]), k[1].wrapping_add(KEY_STEPS[1])];
        }
        let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
    }
    c
}

/// How many words [`first_words`] computes at once.
pub(crate) const LANES: usize = 16;

/// The first words of [`philox4x32`] for several counters (each in two 32-bit halves, low first; the upper half of the
/// counter is `stream`), under one key for all or a key for each.
///
/// Every word has its own 64-bit lane, so that compilers use one vector multiplication for each product: 16 words
/// in the time that [`philox4x32`] takes for three or four, where the machine has vectors of 512 bits and the caller
/// is compiled for them.
#[inline(always)]
pub(crate) fn first_words<const KEYS: usize>(
    keys: &[u64; KEYS],
    stream: u64,
    counters: &[u64; LANES],
) -> [u32; LANES] {
    const { assert!(KEYS == 1 || KEYS == LANES) };
    const LOW: u64 = u32::MAX as u64;
    let (mut k0, mut k1) = (keys.map(|key| key & LOW), keys.map(|key| key >> 32));
    let (mut c0, mut c1) = ([0; LANES], [0; LANES]);
    let (mut c2, mut c3) = ([stream & LOW; LANES], [stream >> 32; LANES]);
    for lane in 0..LANES {
        (c0[lane], c1[lane]) = (counters[lane] & LOW, counters[lane] >> 32);
    }
    for round in 0..10 {
        if round > 0 {
            k0 = k0.map(|k| (k + u64::from(KEY_STEPS[0])) & LOW);
            k1 = k1.map(|k| (k + u64::from(KEY_STEPS[1])) & LOW);
        }
        for lane in 0..LANES {
            let p0 = u64::from(MULTIPLIERS[0]) * (c0[lane] & LOW);
            let p1 = u64::from(MULTIPLIERS[1]) * (c2[lane] & LOW);
            c0[lane] = (p1 >> 32) ^ c1[lane] ^ k0[lane % KEYS];
            c2[lane] = (p0 >> 32) ^ c3[lane] ^ k1[lane % KEYS];
            (c1[lane], c3[lane]) = (p1 & LOW, p0 & LOW);
        }
    }
    let mut words = [0; LANES];
    for lane in 0..LANES {
        words[lane] = c0[lane] as u32;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn words_of_lanes_are_those_of_single_counters(
            keys: [u64; LANES], stream: u64, counters: [u64; LANES],
        ) {
            let half = |x: u64| [x as u32, (x >> 32) as u32];
            let expected = |lane: usize, key: u64| {
                let ([c0, c1], [c2, c3]) = (half(counters[lane]), half(stream));
                philox4x32([c0, c1, c2, c3], half(key))[0]
            };
            let of_one = std::array::from_fn(|lane| expected(lane, keys[0]));
            proptest::prop_assert_eq!(first_words(&[keys[0]], stream, &counters), of_one);
            let of_each = std::array::from_fn(|lane| expected(lane, keys[lane]));
            proptest::prop_assert_eq!(first_words(&keys, stream, &counters), of_each);
        }
    }

    /// The known-answer vectors of Random123 (`kat_vectors`, philox4x32 10).
    #[test]
    fn known_answers() {
        let ones = u32::MAX;
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
