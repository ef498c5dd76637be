//! Why memory cannot be registered, or a key does not serve.

/// Why a key did not give access. The same for local and remote keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// No memory has this key (never had, or no longer).
    Unknown,
    /// The memory lies in another protection domain.
    WrongDomain,
    /// The window is bound over another queue pair.
    WrongQueuePair,
    /// The range is not inside the memory.
    OutOfBounds,
    /// The memory was not registered for this kind of access.
    Permission,
    /// An atomic access is not aligned to 8 bytes.
    Misaligned,
    /// The key's memory cannot be invalidated.
    NotInvalidatable,
    /// Windows are bound to the region.
    WindowsBound,
    /// On-demand memory that is not mapped at this moment, or not with the right that is needed.
    Unmapped,
}

/// Why memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device's limit is reached.
    #[error("the device's limit of {limit} memory {what} is reached: end some first")]
    TooMany {
        /// Regions or windows.
        what: &'static str,
        /// How many there can be.
        limit: u32,
    },
    /// Rights that make no sense together.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE (specification, section 10.6.3.1)")]
    RemoteWithoutLocalWrite,
    /// A loss of power takes the content with it.
    #[error(
        "FLUSH_PERSISTENT needs memory that a file backs, or the promise would be empty: map a file \
         (OwnedMemory::map_file), or leave the right out"
    )]
    NotPersistent,
    /// The address range wraps around.
    #[error(
        "{length} bytes from address {address:#x} on reach beyond the end of the address space"
    )]
    AddressOverflow {
        /// First address.
        address: u64,
        /// Bytes.
        length: usize,
    },
    /// Atomic operations need memory that is surely mapped.
    #[error("on-demand memory cannot serve atomic operations: leave REMOTE_ATOMIC out")]
    OnDemandAtomic,
    /// The kernel does not copy for us.
    #[error(
        "on-demand memory is not possible here: this system forbids process_vm_writev, also within \
         the own process"
    )]
    NoOnDemand,
    /// An implicit region is on-demand memory at its real addresses.
    #[error("an implicit region names memory by its real addresses: leave ZERO_BASED out")]
    ImplicitZeroBased,
    /// How memory is reached and named belongs to the memory.
    #[error("ON_DEMAND and ZERO_BASED can only be changed together with the memory itself")]
    AddressingChanged,
    /// A re-registration that changes nothing.
    #[error("a re-registration must change the memory, the protection domain, or the rights")]
    NothingToChange,
    /// No memory has the key.
    #[error("no memory is registered under this key")]
    NoSuchRegion,
}
