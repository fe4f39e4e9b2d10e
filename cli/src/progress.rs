//! A progress bar on a terminal; nothing where the output is piped.

use hopper_proj::io::convert::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar for so many steps; hidden unless both outputs are terminals.
pub(crate) fn bar(steps: usize) -> ProgressBar {
    styled(steps as u64, "{bar:30} {pos}/{len} {msg} {elapsed}")
}

/// A bar that follows a conversion.
pub(crate) fn bytes() -> (ProgressBar, impl FnMut(Progress)) {
    let bar = styled(0, "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let watch = bar.clone();
    (bar, move |progress| {
        watch.set_length(progress.total);
        watch.set_position(progress.done);
    })
}

fn styled(length: u64, template: &str) -> ProgressBar {
    let shown = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    let target = if shown {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
