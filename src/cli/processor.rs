#![allow(unsafe_code)]
//! The processor time of this process and thread, which std does not tell.

/// Nanoseconds of processor time that all threads of this process have used.
pub(super) fn processor_time() -> u64 {
    nanoseconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Nanoseconds of processor time that this thread has used.
pub(super) fn thread_time() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which writes nothing else.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let before = (processor_time(), thread_time());
        let sum = (0..1_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        assert!(processor_time() > before.0 && thread_time() > before.1, "{sum}");
    }
}
