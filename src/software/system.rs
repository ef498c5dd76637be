#![allow(unsafe_code)]
//! System calls that neither std nor socket2 offers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::time::{Instant, SECOND};

/// Descriptors that one look at a set finds; a further look finds the others.
pub(super) const READY: usize = 32;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn timespec(nanoseconds: u64) -> libc::timespec {
    // SAFETY: zero is a valid value of the structure, whatever its private fields are.
    let mut time: libc::timespec = unsafe { MaybeUninit::zeroed().assume_init() };
    time.tv_sec = (nanoseconds / SECOND) as _;
    time.tv_nsec = (nanoseconds % SECOND) as _;
    time
}

/// The effective user of this thread.
pub(super) fn effective_user() -> u32 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective user of the process at the other end of a connected local socket, when it
/// connected or began to listen.
pub(super) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&credentials) as libc::socklen_t;
    // SAFETY: pointer and length describe `credentials`, into which the kernel writes at most that.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    })?;
    Ok(credentials.uid)
}

/// Attaches a classic BPF program that chooses the socket of a SO_REUSEPORT group by its index.
pub(super) fn attach_reuseport_program(
    socket: BorrowedFd<'_>,
    program: &mut [libc::sock_filter],
) -> io::Result<()> {
    let length = u16::try_from(program.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "program too long"))?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: `program` describes the slice; both outlive the call, which copies them.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// A timer that becomes readable at its time, on the clock of [`super::clock`].
pub(super) fn new_timer() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let descriptor = check(unsafe {
        libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
    })?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Sets a timer to go off `nanoseconds` from now, at least 1; `None` stops it. Either way it is
/// unreadable until then.
pub(super) fn set_timer(timer: BorrowedFd<'_>, nanoseconds: Option<u64>) -> io::Result<()> {
    let value = libc::itimerspec {
        it_interval: timespec(0),
        it_value: timespec(nanoseconds.map_or(0, |wait| wait.max(1))),
    };
    // SAFETY: `value` outlives the call; the old value is not asked for.
    check(unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const value, ptr::null_mut())
    })?;
    Ok(())
}

/// A set of descriptors that is itself a descriptor: readable while one of the set is.
pub(super) fn new_epoll() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Adds a descriptor to the set; it leaves the set by being closed.
pub(super) fn add_to_epoll(epoll: BorrowedFd<'_>, descriptor: RawFd) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: descriptor as u64 };
    // SAFETY: `event` outlives the call.
    check(unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
    })?;
    Ok(())
}

/// Takes a descriptor out of the set while it stays open.
pub(super) fn remove_from_epoll(epoll: BorrowedFd<'_>, descriptor: RawFd) -> io::Result<()> {
    // SAFETY: this operation takes no event.
    check(unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, descriptor, ptr::null_mut())
    })?;
    Ok(())
}

/// Descriptors of the set that are readable now, written to `ready`; returns how many.
pub(super) fn ready_in_epoll(epoll: BorrowedFd<'_>, ready: &mut [RawFd; READY]) -> usize {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY];
    // SAFETY: pointer and length describe `events`, into which the kernel writes at most that.
    let count = unsafe {
        libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), READY as libc::c_int, 0)
    };
    // An error is a signal: nothing is ready then, and the next look sees it.
    let count = usize::try_from(count).unwrap_or(0);
    for (place, event) in ready.iter_mut().zip(&events[..count]) {
        *place = event.u64 as RawFd;
    }
    count
}

/// Sleeps until one of the descriptors is readable, or `nanoseconds` have passed.
pub(super) fn sleep_on(descriptors: &mut [libc::pollfd], nanoseconds: Option<u64>) {
    let timeout = nanoseconds.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the slice and the timeout outlive the call; no signal mask is given. An error is a
    // signal or bad memory, and every caller looks at what it waits for anyway.
    unsafe {
        libc::ppoll(
            descriptors.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            timeout,
            ptr::null(),
        );
    }
}

/// What [`sleep_on`] takes, for a descriptor that shall become readable.
pub(super) fn readable(descriptor: RawFd) -> libc::pollfd {
    libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 }
}

/// Blocks all signals in the calling thread: they are the program's, not ours.
pub(super) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set that pthread_sigmask then reads; neither fails with
    // valid arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
    }
}

/// Nanoseconds from `now` to `deadline`; nothing if it never comes.
pub(super) fn until(now: Instant, deadline: Instant) -> Option<u64> {
    (deadline != Instant::NEVER).then(|| deadline.since(now))
}

/// Asks the scheduler for short slices: the calling thread works for microseconds at a time, and
/// on a wake-up shall not wait behind a thread that spins. Kernels that do not know this ignore
/// it, and a policy that the program has chosen for its threads stays.
pub(super) fn ask_for_short_slices() {
    // struct sched_attr in its first version (linux/sched/types.h).
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SLICE: u64 = 100_000;
    // SAFETY: the call takes no pointers.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return;
    }
    // SAFETY: as above.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the structure has the size that it says and outlives the call. A refusal changes
    // nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
