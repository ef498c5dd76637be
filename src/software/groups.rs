//! Attaching queue pairs to multicast groups: the engine keeps the members, and the link is in each
//! group that has some.

use std::net::IpAddr;

use super::core::Core;
use super::device::Device;
use super::driver::Forked;
use crate::engine::ControlError;
use crate::link::JoinError;
use crate::wire::Qpn;

/// Why a queue pair could not be attached to a multicast group. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The device refused it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The group could not be joined on the interface.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The device belongs to another process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

impl Core {
    fn attach_multicast(&mut self, number: Qpn, group: IpAddr) -> Result<(), AttachError> {
        let group = group.to_canonical();
        if self.engine.attach_multicast(number, group)?
            && let Err(error) = self.link.join(group)
        {
            self.engine.detach_multicast(number, group)?;
            return Err(error.into());
        }
        Ok(())
    }

    fn detach_multicast(&mut self, number: Qpn, group: IpAddr) -> Result<(), ControlError> {
        let group = group.to_canonical();
        if self.engine.detach_multicast(number, group)? {
            self.link.leave(group);
        }
        Ok(())
    }
}

impl Device {
    /// Attaches a datagram queue pair to a multicast group, which the link joins for its first
    /// member.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach_multicast(&self, number: Qpn, group: IpAddr) -> Result<(), AttachError> {
        self.driver().control(|core, _| core.attach_multicast(number, group))?
    }

    /// Detaches a queue pair from a multicast group, which the link leaves with its last member.
    ///
    /// # Errors
    /// [`AttachError::Control`] if the queue pair is not attached, or [`AttachError::Forked`].
    pub fn detach_multicast(&self, number: Qpn, group: IpAddr) -> Result<(), AttachError> {
        Ok(self.driver().control(|core, _| core.detach_multicast(number, group))??)
    }

    /// Detaches a queue pair from all multicast groups, as before it is destroyed.
    ///
    /// # Errors
    /// As [`Self::detach_multicast`].
    pub fn leave_all_multicast(&self, number: Qpn) -> Result<(), AttachError> {
        let groups = self.control(|engine, _| engine.multicast_groups_of(number))??;
        groups.into_iter().try_for_each(|group| self.detach_multicast(number, group))
    }
}
