//! PTX text with statements taken out or replaced.

use std::ops::Range;

/// Where the statements that start with this mnemonic lie in the text, their semicolons included.
pub fn places(text: &str, mnemonic: &str) -> Vec<Range<usize>> {
    let end = |start: usize| start + text[start..].find(';').expect("a statement ends") + 1;
    text.match_indices(mnemonic)
        .map(|(start, _)| start..end(start))
        .collect()
}

/// The text with something else at these places, which do not overlap.
pub fn replaced(text: &str, mut places: Vec<Range<usize>>, to: &str) -> String {
    places.sort_by_key(|place| std::cmp::Reverse(place.start));
    let mut text = text.to_owned();
    places.into_iter().for_each(|place| text.replace_range(place, to));
    text
}

/// The text without the `which`-th statement that starts with this mnemonic. In its place comes one that does nothing
/// that matters here, and may be predicated; a wait ends at once.
pub fn without(text: &str, mnemonic: &str, which: usize) -> String {
    let instead = match mnemonic {
        "mbarrier.try_wait" => "setp.eq.u32 p, 0, 0;",
        _ => "griddepcontrol.launch_dependents;",
    };
    let place = places(text, mnemonic)
        .get(which)
        .expect("a statement of the kernel")
        .clone();
    replaced(text, vec![place], instead)
}
