//! Pages of this process that a test maps, protects and unmaps.
#![allow(unsafe_code, dead_code, unreachable_pub, reason = "system calls; each test uses a part")]

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Addresses that belong to a test, each page of them mapped or not.
pub struct Pages {
    start: *mut u8,
    count: usize,
}

// SAFETY: the bytes are reached by volatile accesses only, from any thread.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `count` pages of zeros, readable and writable.
    pub fn new(count: usize) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping wherever there is room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), count * PAGE, rights, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start: start.cast(), count }
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn address(&self) -> u64 {
        self.start as u64
    }

    pub fn len(&self) -> usize {
        self.count * PAGE
    }

    fn page(&self, page: usize) -> *mut libc::c_void {
        assert!(page < self.count);
        self.start.wrapping_add(page * PAGE).cast()
    }

    /// Nothing is there any more, nor will anything else come there: it stays reserved.
    pub fn unmap(&self, page: usize) {
        self.protect(page, libc::PROT_NONE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces a page of our own.
        let at = unsafe { libc::mmap(self.page(page), PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    }

    /// Really nothing is there. Something else may come, so only where nothing else maps.
    pub fn release(&self, page: usize) {
        // SAFETY: a page of our own.
        let result = unsafe { libc::munmap(self.page(page), PAGE) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Zeros are there.
    pub fn map(&self, page: usize) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: replaces a page of our own, or takes its place back.
        let at = unsafe { libc::mmap(self.page(page), PAGE, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    }

    pub fn make_read_only(&self, page: usize) {
        self.protect(page, libc::PROT_READ);
    }

    fn protect(&self, page: usize, rights: i32) {
        // SAFETY: a page of our own.
        let result = unsafe { libc::mprotect(self.page(page), PAGE, rights) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside, and mapped as the caller knows.
            unsafe { self.start.add(offset + index).write_volatile(*byte) };
        }
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.len());
        // SAFETY: inside, and mapped as the caller knows.
        (offset..offset + length).map(|at| unsafe { self.start.add(at).read_volatile() }).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own addresses; what is not mapped does not matter.
        unsafe { libc::munmap(self.start.cast(), self.len()) };
    }
}
