#![allow(unsafe_code)]
//! Descriptors that a forked child must not keep.
//!
//! A child of fork(2) has copies of all descriptors, and as long as it lives they keep the port,
//! the slot and the place in the steering group taken although nobody serves them any more. So the
//! child puts the null device in the place of each of ours, before fork returns to the program:
//! what stood there is closed, and the numbers stay taken until their owners are dropped, so that
//! no drop in the child can close a descriptor which the program has opened since.
//!
//! ```text
//!  parent, any thread     Local::open ─ gate ─ open, note in the table ─ gate
//!  parent, forking        before fork: close the gate, wait until nobody is inside
//!  child                  null device over every noted descriptor; a new generation
//! ```

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Descriptors in all devices of a process together.
const LIMIT: usize = 16_384;
/// Bit of [`GATE`]: a fork is under way.
const FORKING: u32 = 1 << 31;

/// Descriptors plus one; 0 is a free place.
static TABLE: [AtomicI32; LIMIT] = [const { AtomicI32::new(0) }; LIMIT];
/// Threads that open or close descriptors right now, and [`FORKING`].
static GATE: AtomicU32 = AtomicU32::new(0);
/// How many forks lie between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The null device, open before the first descriptor is noted.
static NULL: AtomicI32 = AtomicI32::new(-1);

thread_local! {
    /// How often this thread is inside the gate.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Tells a forked child from its parent: the child's is another.
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value with descriptors that are this process's only; see the module's text.
#[derive(Debug)]
pub(super) struct Local<T> {
    /// Empty only while being dropped.
    value: Option<T>,
    places: Vec<usize>,
}

impl<T> Local<T> {
    /// Opens a value and notes its descriptors.
    ///
    /// # Errors
    /// That of `open`, or that this process has too many descriptors already.
    pub(super) fn open<E: From<io::Error>>(
        open: impl FnOnce() -> Result<T, E>,
        descriptors: impl FnOnce(&T) -> Vec<RawFd>,
    ) -> Result<Self, E> {
        install()?;
        let _gate = Gate::enter();
        let mut local = Self { value: Some(open()?), places: Vec::new() };
        for descriptor in local.value.as_ref().map(descriptors).unwrap_or_default() {
            local.places.push(note(descriptor)?);
        }
        Ok(local)
    }

    /// Lets a value open further descriptors, and notes those.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn extend<E: From<io::Error>>(
        &mut self,
        open: impl FnOnce(&mut T) -> Result<Vec<RawFd>, E>,
    ) -> Result<(), E> {
        let _gate = Gate::enter();
        for descriptor in open(self)? {
            self.places.push(note(descriptor)?);
        }
        Ok(())
    }

    /// Opens a value that is one descriptor.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn open_one(open: impl FnOnce() -> io::Result<T>) -> io::Result<Self>
    where
        T: AsRawFd,
    {
        Self::open(open, |value| vec![value.as_raw_fd()])
    }
}

impl<T: AsFd> AsFd for Local<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T> Deref for Local<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("only the drop takes the value")
    }
}

impl<T> DerefMut for Local<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("only the drop takes the value")
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        let _gate = Gate::enter();
        for place in self.places.drain(..) {
            TABLE[place].store(0, Ordering::Relaxed);
        }
        self.value = None;
    }
}

fn note(descriptor: RawFd) -> io::Result<usize> {
    let free = |place: &AtomicI32| {
        place.compare_exchange(0, descriptor + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    TABLE.iter().position(free).ok_or_else(|| {
        io::Error::other(format!("more than {LIMIT} descriptors of RoCE devices in one process"))
    })
}

/// A thread that is opening or closing descriptors: no fork meanwhile.
struct Gate;

impl Gate {
    fn enter() -> Self {
        // A thread that is already inside must not wait for a fork that waits for it.
        if INSIDE.replace(INSIDE.get() + 1) == 0 {
            let open = |gate: u32| (gate & FORKING == 0).then_some(gate + 1);
            while GATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, open).is_err() {
                std::thread::yield_now();
            }
        }
        Self
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if INSIDE.replace(INSIDE.get() - 1) == 1 {
            GATE.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Makes fork(2) call the handlers below, once in a process and its children.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<File, i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(|error| error.raw_os_error().unwrap_or(0))?;
        NULL.store(null.as_raw_fd(), Ordering::Release);
        // SAFETY: the three handlers are functions for the life of the process (the library is
        // never unloaded) and do only what is allowed between fork and exec.
        let error =
            unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        if error == 0 { Ok(null) } else { Err(error) }
    });
    installed.as_ref().map(|_| ()).map_err(|number| io::Error::from_raw_os_error(*number))
}

extern "C" fn before_fork() {
    // Two threads may fork at once: the second waits for the first.
    let close = |gate: u32| (gate & FORKING == 0).then_some(gate | FORKING);
    while GATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, close).is_err() {
        std::thread::yield_now();
    }
    while GATE.load(Ordering::Acquire) != FORKING {
        std::thread::yield_now();
    }
}

extern "C" fn in_parent() {
    GATE.store(0, Ordering::Release);
}

extern "C" fn in_child() {
    let null = NULL.load(Ordering::Relaxed);
    for place in &TABLE {
        let descriptor = place.swap(0, Ordering::Relaxed) - 1;
        if descriptor < 0 {
            continue;
        }
        // SAFETY: both are numbers of open descriptors that belong to this crate; dup3 may be
        // called here (it is one system call). If it fails the descriptor is closed at least.
        unsafe {
            if libc::dup3(null, descriptor, libc::O_CLOEXEC) < 0 {
                libc::close(descriptor);
            }
        }
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    GATE.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_forked_child_keeps_no_end_of_a_pair() {
        let (mut kept, given) = UnixStream::pair().unwrap();
        let local = Local::open_one(|| Ok(given)).unwrap();
        let before = generation();
        // SAFETY: the child only looks at an atomic, waits to be killed or exits.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let good = generation() == before + 1;
            // SAFETY: pause and _exit may be called in a forked child.
            unsafe {
                if !good {
                    libc::_exit(1);
                }
                libc::pause();
                libc::_exit(0);
            }
        }
        (&*local).write_all(b"x").unwrap();
        drop(local);
        let mut all = Vec::new();
        // The end of the stream comes only when no copy of the other end is open anywhere.
        kept.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let read = kept.read_to_end(&mut all);
        // SAFETY: the child is ours and not yet waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!((read.ok(), all.as_slice()), (Some(1), b"x".as_slice()));
        assert_eq!(generation(), before);
    }

    #[test]
    fn forks_and_openings_do_not_block_each_other() {
        let finished = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !finished.load(Ordering::Relaxed) {
                        let outer = Local::open_one(|| File::open("/dev/null")).unwrap();
                        // One inside the other, as in a link that gives up half-way.
                        let open = || Local::open_one(|| File::open("/dev/null"));
                        drop(Local::open(open, |_| Vec::new()).unwrap());
                        drop(outer);
                    }
                });
            }
            for _ in 0..50 {
                // SAFETY: the child ends at once, and is waited for.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::_exit(0);
                    }
                    assert!(child > 0);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                }
            }
            finished.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn opening_notes_every_descriptor() {
        let local =
            Local::open(UnixStream::pair, |(one, two)| vec![one.as_raw_fd(), two.as_raw_fd()])
                .unwrap();
        let places = local.places.clone();
        let noted = |place: &usize| TABLE[*place].load(Ordering::Relaxed) - 1;
        assert_eq!(
            places.iter().map(noted).collect::<Vec<_>>(),
            [local.0.as_raw_fd(), local.1.as_raw_fd()]
        );
        drop(local);
        assert_eq!(INSIDE.get(), 0);
    }
}
