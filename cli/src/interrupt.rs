//! What happens ahead of the end where a signal ends the program: unfinished outputs are removed.

/// Has signals that end the program remove what is unfinished first. Those that are ignored stay so, as `nohup` wants
/// it.
#[cfg(unix)]
pub(crate) fn install() -> std::io::Result<()> {
    use hopper_proj::io::output::abandon_unfinished;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGXFSZ};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    // A handler that does nothing: a file that grows beyond its limit is an error like any other.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    let ends = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU].into_iter();
    let mut signals = Signals::new(ends.filter(|&signal| !is_ignored(signal)))?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        for signal in signals.forever() {
            abandon_unfinished();
            // Whoever waits sees the signal that ended the program. It does not come back from here.
            if emulate_default_handler(signal).is_err() {
                std::process::exit(1);
            }
        }
    })?;
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn install() -> std::io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing; it writes the present one, for which there is room.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call that succeeded has written it.
    code == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}
