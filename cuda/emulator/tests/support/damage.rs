//! Texts of PTX that are damaged on purpose.

// Each that includes this file sees it from another place, and uses its own part of it.
#![allow(dead_code, unreachable_pub)]

use rand::Rng;

/// Numbers at the ends of what instructions take.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "31",
    "32",
    "63",
    "64",
    "65535",
    "0x7fffffff",
    "0x80000000",
    "0xffffffffffffffff",
    "0f7FC00001",
];

fn one<'a, T: ?Sized>(from: &[&'a T], random: &mut impl Rng) -> &'a T {
    from[random.random_range(0..from.len())]
}

/// A text with a few lines, statements and words removed, repeated, exchanged, misspelt, or taken from another text.
/// Its first lines are kept, and a text of few more is returned as it is.
pub fn damaged(text: &str, donor: &str, kept: usize, random: &mut impl Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let donated: Vec<&str> = donor.lines().collect();
    for _ in 0..random.random_range(1..4) {
        if lines.len() < kept + 2 || donated.is_empty() {
            break;
        }
        let (a, b) = (
            random.random_range(kept..lines.len()),
            random.random_range(kept..lines.len()),
        );
        let other = if random.random() {
            lines[b].clone()
        } else {
            one(&donated, random).to_owned()
        };
        match random.random_range(0..16) {
            0 => drop(lines.remove(a)),
            1 => lines.swap(a, b),
            2 => lines[a] = other,
            3 => lines.truncate(a + 1),
            4 => {
                let misspelt = |c| if random.random_ratio(1, 12) { '7' } else { c };
                lines[a] = lines[a].chars().map(misspelt).collect();
            }
            5 => lines.insert(a, other),
            6..=8 => replace_part(&mut lines[a], &other, '.', random),
            9..=11 => replace_part(&mut lines[a], &other, ' ', random),
            12 => replace_part(&mut lines[a], &other, ';', random),
            13 => {
                // A statement more.
                let statement = one(&other.split(';').collect::<Vec<_>>(), random).to_owned();
                let mut own: Vec<&str> = lines[a].split(';').collect();
                own.insert(random.random_range(0..own.len()), &statement);
                lines[a] = own.join(";");
            }
            _ => replace_number(&mut lines[a], random),
        }
    }
    lines.join("\n")
}

/// Puts a part of one line, between these separators, in the place of a part of another.
fn replace_part(line: &mut String, other: &str, separator: char, random: &mut impl Rng) {
    let part = one(&other.split(separator).collect::<Vec<_>>(), random);
    let mut own: Vec<&str> = line.split(separator).collect();
    let at = random.random_range(0..own.len());
    own[at] = part;
    *line = own.join(&separator.to_string());
}

/// Puts a number at the end of what instructions take in the place of one of a line's.
fn replace_number(line: &mut String, random: &mut impl Rng) {
    let mut words: Vec<&str> = line.split_inclusive([' ', ',', ';', '+', ']', '[', '}']).collect();
    let numbers: Vec<usize> = (0..words.len())
        .filter(|&at| words[at].starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    if numbers.is_empty() {
        return;
    }
    let at = numbers[random.random_range(0..numbers.len())];
    let number = one(&NUMBERS, random);
    let end = words[at].trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    let number = format!("{number}{end}");
    words[at] = &number;
    *line = words.concat();
}
