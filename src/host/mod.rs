//! What the host offers: interfaces, addresses, GIDs, and what this process may do.
//!
//! Everything is read anew at each call, in the network namespace of the calling thread; nothing
//! is sent and no privilege is needed.

mod gid;
mod interface;
mod mapping;
mod mtu;
mod privileges;
mod route;
mod watch;

pub use gid::{Gid, GidParseError};
pub use interface::{Interface, interface_named, interface_of, interfaces};
pub use mapping::{MappingError, check_mapped};
pub use privileges::{Capability, Privileges};
pub use watch::{Change, InterfaceWatch};
