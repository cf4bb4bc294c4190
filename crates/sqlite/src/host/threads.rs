//! Threads of our own in someone else's process.

use std::io;
use std::thread;

/// Starts a thread that receives no signals: they are the application's, and its handlers expect its own threads.
/// # Errors
/// The system's, when it has no more threads to give.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    #[cfg(test)]
    refusals::next()?;
    // SAFETY: both sets are initialised by the calls that receive them, and the mask is this thread's own.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        // A thread starts with the mask of its maker, so there is no moment in which it could be interrupted.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        spawned
    }
}

/// Lets tests do as if the system had no thread to give.
#[cfg(test)]
pub(crate) mod refusals {
    use std::cell::Cell;
    use std::io;

    thread_local!(static LEFT: Cell<u32> = const { Cell::new(0) });

    /// The next `times` threads that the calling thread asks for are refused.
    pub(crate) fn set(times: u32) {
        LEFT.set(times);
    }

    pub(super) fn next() -> io::Result<()> {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        if left == 0 { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_ours_blocks_all_signals_and_its_maker_does_not() {
        let blocked = || {
            // SAFETY: the set is initialised by the call.
            unsafe {
                let mut mask = std::mem::zeroed::<libc::sigset_t>();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
                libc::sigismember(&raw const mask, libc::SIGTERM) == 1
            }
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = spawn("test", move || sender.send(blocked()).expect("send")).expect("spawn");
        assert!(receiver.recv().expect("receive"));
        thread.join().expect("join");
        assert!(!blocked());
    }
}
