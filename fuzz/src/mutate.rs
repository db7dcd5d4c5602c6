//! Changes to the bytes of a file.

use crate::random::Random;

/// Where programs go wrong: around 0, around the ends of integer types, and sizes that fit into no memory.
const NUMBERS: [i128; 22] = [
    -1,
    0,
    1,
    2,
    3,
    127,
    255,
    256,
    32767,
    65535,
    65536,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    1 << 60,
    (1 << 62) + 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
];

/// What texts have in place of an integer, or of anything.
const WORDS: [&str; 22] = [
    "-0",
    "1e999",
    "1e-400",
    "0.5",
    "NaN",
    "Infinity",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"x\"",
    ",",
    "18446744073709551616",
    "'<f8'",
    "'<i8'",
    "'|b1'",
    "'>f4'",
    "'|O'",
    "True",
    "\u{fffd}",
    "\t",
];

/// One random change. Numbers are written as text where the file has text.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.index(12) {
        0 | 1 => flip(bytes, random),
        2 => change(bytes, random),
        3 => bytes.truncate(random.index(bytes.len() + 1)),
        4 => repeat(bytes, random),
        5 => drop_range(bytes, random),
        6 => insert(bytes, random),
        7 | 8 => put_integer(bytes, random),
        9 | 10 => put_number(bytes, random),
        _ => put_word(bytes, random),
    }
}

/// A part of the bytes, mostly a short one.
fn part(bytes: &[u8], random: &mut Random) -> std::ops::Range<usize> {
    let begin = random.index(bytes.len() + 1);
    let longest = bytes.len() - begin;
    let len =
        if random.index(4) == 0 { random.index(longest + 1) } else { random.index(longest.min(16) + 1) };
    begin..begin + len
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() {
        let bit = random.index(8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

fn change(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() {
        let at = random.index(bytes.len());
        bytes[at] = random.word() as u8;
    }
}

fn repeat(bytes: &mut Vec<u8>, random: &mut Random) {
    let range = part(bytes, random);
    let copy = bytes[range.clone()].to_vec();
    bytes.splice(range.end..range.end, copy);
}

fn drop_range(bytes: &mut Vec<u8>, random: &mut Random) {
    let range = part(bytes, random);
    bytes.drain(range);
}

fn insert(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.index(bytes.len() + 1);
    let len = random.index(17);
    let new: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
    bytes.splice(at..at, new);
}

/// An integer of 1 to 8 bytes becomes one of [`NUMBERS`], or one more or less than it was.
pub fn put_integer(bytes: &mut [u8], random: &mut Random) {
    let width = 1 << random.index(4);
    let Some(last) = bytes.len().checked_sub(width) else { return };
    let mut at = random.index(last + 1);
    if random.index(2) == 0 {
        // As in the middle of an array.
        at -= at % width;
    }
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = match random.index(6) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        _ => NUMBERS[random.index(NUMBERS.len())] as u64,
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// The places of the decimal numbers in a file's text.
fn numbers(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut begin = None;
    for at in 0..=bytes.len() {
        let is_digit = bytes.get(at).is_some_and(u8::is_ascii_digit);
        match (begin, is_digit) {
            (None, true) => begin = Some(at),
            (Some(from), false) => {
                found.push(from..at);
                begin = None;
            }
            _ => {}
        }
    }
    found
}

/// A number of the text becomes one of [`NUMBERS`].
pub fn put_number(bytes: &mut Vec<u8>, random: &mut Random) {
    let number = NUMBERS[random.index(NUMBERS.len())];
    put_text(bytes, &number.to_string(), random);
}

/// A number of the text becomes something else.
pub fn put_word(bytes: &mut Vec<u8>, random: &mut Random) {
    put_text(bytes, WORDS[random.index(WORDS.len())], random);
}

/// Puts a text in the place of a number. What is aligned by spaces, as the headers of .npy files are, keeps its length.
fn put_text(bytes: &mut Vec<u8>, text: &str, random: &mut Random) {
    let places = numbers(bytes);
    if places.is_empty() {
        return;
    }
    let place = places[random.index(places.len())].clone();
    let (old, end) = (bytes.len(), place.start + text.len());
    bytes.splice(place, text.bytes());
    let padding = |bytes: &[u8]| bytes[end..].windows(2).position(|pair| pair == b"  ").map(|at| end + at);
    while bytes.len() > old
        && let Some(at) = padding(bytes)
    {
        bytes.remove(at);
    }
    while bytes.len() < old
        && let Some(at) = padding(bytes)
    {
        bytes.insert(at, b' ');
    }
}
